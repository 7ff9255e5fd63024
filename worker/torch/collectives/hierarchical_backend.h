#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_HIERARCHICAL_BACKEND_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_HIERARCHICAL_BACKEND_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/torch/collectives/collective_backend.h"
#include "worker/torch/collectives/shm_group.h"

namespace ddprun::worker {

// The world ranks of each host, in order; the first rank of a host is its leader.
struct HostLayout {
  std::vector<std::vector<uint32_t>> hosts;

  uint32_t HostOf(uint32_t rank) const;
  // The rank's index on its host.
  uint32_t LocalRankOf(uint32_t rank) const;
};

// c10d's collectives over several hosts: in shared memory on each host, and over another backend
// (Gloo) between the hosts' leaders, so that only one rank a host uses the network. All ranks get
// the same bits if the leaders' backend gives all leaders the same. A failure of the leaders'
// collectives fails those on their hosts, and the other way round.
class HierarchicalBackend : public CollectiveBackend {
 public:
  // Takes a leaders' group in which a collective may still run.
  using Disposal = std::function<void(c10::intrusive_ptr<c10d::Backend> leaders)>;

  // `leaders`: the leaders' group, by host; null on other ranks. `dispose`: null = such a group is
  // never destroyed.
  HierarchicalBackend(uint32_t rank, HostLayout layout, std::unique_ptr<ShmGroup> local,
                      c10::intrusive_ptr<c10d::Backend> leaders, std::chrono::milliseconds timeout,
                      Disposal dispose = nullptr);
  ~HierarchicalBackend() override;

  // With one rank a host only the leaders' Gloo is left. The name isn't "gloo", because
  // c10d::Logger casts backends of that name to ProcessGroupGloo.
  const std::string getBackendName() const override {
    return layout_.hosts.size() == static_cast<size_t>(getSize()) ? "ordered gloo" : "hierarchical";
  }

 protected:
  Step AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) override;
  Step Broadcast(const at::Tensor& tensor, uint32_t root) override;
  Step AllGather(const at::Tensor& input, const Tensors& outputs) override;
  Step ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                     const c10d::ReduceOp& operation) override;
  Step Barrier() override;
  void Break(const std::string& reason) override;

 private:
  using Milliseconds = std::chrono::milliseconds;

  // Shared by the queue's thread, Gloo's threads and the one that aborts. Outlives an abandoned
  // group.
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
    bool abandoned = false;
  };

  // Makes a step of `run`: an exception ends the group on this host and the leaders' connections.
  Step ToStep(std::function<void(Milliseconds timeout)> run);
  bool leads() const { return local_->rank() == 0; }
  void Local(shm::Call call, Milliseconds timeout) { local_->Finish(call, timeout); }
  // Waits for a collective of the leaders. Throws PeerFailure when the group is abandoned, which
  // doesn't end Gloo's collective.
  void Await(const c10::intrusive_ptr<c10d::Work>& work);
  void Abandon();
  void CloseLeaders();
  void RunAllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                    Milliseconds timeout);
  void RunBroadcast(const at::Tensor& tensor, uint32_t root, Milliseconds timeout);
  void RunAllGather(const at::Tensor& input, const Tensors& outputs, Milliseconds timeout);
  void AllReduceLeaders(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                        Milliseconds timeout);
  // All-reduce of few bytes: an all-gather between leaders, then a sum in the order of hosts.
  void AllReduceSmall(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                      Milliseconds timeout);
  // Gathers each leader's `own` [n] into every leader's `blocks` [hosts, n].
  void AllGatherLeaders(at::Tensor own, const at::Tensor& blocks, Milliseconds timeout);
  void BroadcastLeaders(const at::Tensor& tensor, uint32_t host, Milliseconds timeout);

  const HostLayout layout_;
  const uint32_t host_;  // this rank's
  const std::unique_ptr<ShmGroup> local_;
  c10::intrusive_ptr<c10d::Backend> leaders_;
  const Disposal dispose_;
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_HIERARCHICAL_BACKEND_H_
