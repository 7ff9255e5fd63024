#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_GROUP_ABORT_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_GROUP_ABORT_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/time/time.h"
#include "base/fd.h"

namespace ddprun::worker {

// Breaks the connections of process groups, so that whatever waits there for a peer ends with an
// error, now and from now on. Our own backends and NCCL have an abort() for that; Gloo's does
// nothing, so its sockets are shut down, and a connect that is under way is left to itself.
// Threads: any.
class GroupAbort {
 public:
  GroupAbort() = default;
  // Shuts Gloo's sockets down: peers that still wait for this rank learn that it has left.
  ~GroupAbort();
  GroupAbort(const GroupAbort&) = delete;
  GroupAbort& operator=(const GroupAbort&) = delete;

  // Whose TCP sockets those are that come into being while a group connects; nobody tells.
  enum class Sockets {
    kGloo,  // connected ones are shut down with the group; an Abort meanwhile leaves them: Gloo's
            // timeouts end the connect
    kNccl,  // an Abort meanwhile shuts them down, those that listen too: NCCL would wait for who
            // has died without an end. A group that has connected has an abort() of its own
  };

  // Runs `connect` in a thread of its own. Throws what it throws; PeerFailure when there is an
  // Abort meanwhile: then `connect` may still run, so it must own what it uses. Requires: no other
  // thread of this process makes TCP sockets.
  void Connect(std::function<void()> connect, Sockets sockets = Sockets::kGloo);

  // Aborts this one, too, if it still lives then; NCCL's in a thread of its own, since that takes
  // half a second.
  void Add(const c10::intrusive_ptr<c10d::Backend>& backend);

  void Abort();

  // Destroys a group beside everything else: one of Gloo whose sockets were just shut down, or of
  // NCCL that was aborted, waits for its own threads to notice. `memory` lives as long: what was
  // given up may still arrive there.
  static void DestroyBeside(c10::intrusive_ptr<c10d::Backend> backend, at::Tensor memory = {});

  // Waits for all that was left to itself: a process that ends would pull the floor from under it.
  // For the groups no longer than `patience`: Gloo can forget a message whose bytes are under way
  // when a peer dies, and a collective that waits for it ends with the collectives' timeout only.
  static void JoinAbandoned(absl::Duration patience = absl::Seconds(5));

 private:
  struct Attempt;

  void ShutDown();
  static void Abandon(std::thread connecting);
  static void AbortOne(const c10::intrusive_ptr<c10d::Backend>& backend);

  std::mutex mutex_;
  bool aborted_ = false;
  std::shared_ptr<Attempt> attempt_;  // under way; null = none
  // Copies of Gloo's descriptors: a number that Gloo has closed may be another file's by now.
  std::vector<Fd> sockets_;
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_GROUP_ABORT_H_
