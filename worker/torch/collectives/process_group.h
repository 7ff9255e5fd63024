#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_PROCESS_GROUP_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_PROCESS_GROUP_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/torch/collectives/group_abort.h"

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

// kAuto: the CPU backend that suits the hosts: shared memory on one host, hierarchical if a host
// has several ranks, else Gloo; and Gloo if shared memory can't be used.
enum class BackendKind { kAuto, kGloo, kNccl, kShm, kHierarchical };

// The name that users write: "auto", "gloo" and so on.
const char* BackendName(BackendKind kind);

struct ProcessGroupPlan {
  BackendKind backend = BackendKind::kGloo;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t host = 0;     // number of this rank's agent or launcher, which stands for the host
  int device_index = 0;  // NCCL: this process' GPU
  // Name or IP that Gloo binds and that peers reach; "" = what this machine's name resolves to.
  // The interfaces of GLOO_SOCKET_IFNAME come before it, as in Python.
  std::string bind_address;
  absl::Duration start_timeout;       // for all peers to appear
  absl::Duration collective_timeout;  // for one collective
  std::shared_ptr<GroupAbort> abort;  // can abort the group; null = the group is never aborted
};

// Meets all peers through `store` (no rank is bound or connected before all have come), then
// connects them. From then on this process ignores SIGPIPE, as Python does, unless the program has
// a handler of its own: a lost peer is an error of the collective.
// Params: reason: what the backend is and why, for people; may be null.
// Errors: UNAVAILABLE, "PeerError: …" — a peer did not come within start_timeout, died meanwhile,
// or the generation ended. INTERNAL — LibTorch refused; the text says why. FAILED_PRECONDITION —
// NCCL or shared memory was asked for and this build or machine, or the ranks' hosts, have none.
// INVALID_ARGUMENT — the ranks were asked for different backends.
// Bound: three times start_timeout (for the peers, for their addresses, until they have connected),
// and five connect timeouts of 5 s (c10d's tries, when a peer dies at that moment).
absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> CreateProcessGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan,
    std::string* reason = nullptr);

// Creates a Gloo group for messages from one rank to another (send and recv of tensors in CPU
// memory), which our own backends don't support. The group works beside them, in a thread of its
// own. A collective, after CreateProcessGroup of the same plan, over a store of its own.
// Errors: UNAVAILABLE, INTERNAL as above. Bound: as above, without the first start_timeout.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> CreateMessageGroup(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupPlan& plan);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_PROCESS_GROUP_H_
