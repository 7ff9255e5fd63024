#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_MESSAGE_BACKEND_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_MESSAGE_BACKEND_H_

#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace ddprun::worker {

// Gloo's messages between two ranks, which all end when the group is aborted. When a connection
// breaks, Gloo fails the messages that wait for their turn, but forgets the one that was being
// transferred (tcp::Pair::signalException): a wait for it would last for Gloo's timeout.
// Threads: abort any, the rest one.
class MessageBackend : public c10d::Backend {
 public:
  explicit MessageBackend(c10::intrusive_ptr<c10d::Backend> gloo);

  const std::string getBackendName() const override { return "gloo messages"; }
  // After an abort wait() returns false once, then whether the message has arrived.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  void abort() override;

 private:
  c10::intrusive_ptr<c10d::Work> Keep(c10::intrusive_ptr<c10d::Work> work);

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  std::mutex mutex_;
  bool aborted_ = false;
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> works_;  // some may be gone
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_MESSAGE_BACKEND_H_
