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

// Breaks the connections of process groups, so that all present and future waits for a peer end
// with an error. Our own backends and NCCL have an abort() for that. Gloo's does nothing, so its
// sockets are shut down, and a connect that is under way is abandoned.
// Threads: any.
class GroupAbort {
 public:
  GroupAbort() = default;
  // Shuts Gloo's sockets down, so that peers that still wait for this rank learn that it has left.
  ~GroupAbort();
  GroupAbort(const GroupAbort&) = delete;
  GroupAbort& operator=(const GroupAbort&) = delete;

  // The library that makes TCP sockets while a group connects. It doesn't report them, so they are
  // found by comparing the process' descriptors.
  enum class Sockets {
    kGloo,  // connected ones are shut down with the group; an Abort meanwhile leaves them: Gloo's
            // timeouts end the connect
    kNccl,  // an Abort meanwhile shuts them down, listening ones too: NCCL would wait forever for
            // a dead peer. A group that has connected has an abort() of its own
  };

  // Runs `connect` in a thread of its own. Throws what `connect` throws, or PeerFailure if there is
  // an Abort meanwhile; `connect` may then go on, so it must own what it uses. Requires: no other
  // thread of this process makes TCP sockets.
  void Connect(std::function<void()> connect, Sockets sockets = Sockets::kGloo);

  // Makes Abort() abort this backend, too, if it still lives then; NCCL's in a thread of its own,
  // because that takes half a second.
  void Add(const c10::intrusive_ptr<c10d::Backend>& backend);

  void Abort();

  // Destroys a group in another thread: the destructor of a Gloo group with sockets just shut down,
  // or of an aborted NCCL group, waits for its own threads to notice. `memory` lives as long,
  // because messages that were given up may still arrive there.
  static void DestroyBeside(c10::intrusive_ptr<c10d::Backend> backend, at::Tensor memory = {});

  // Waits for all abandoned connects and groups, which must not run while the process ends. For
  // groups at most `patience`: when a peer dies, Gloo can forget a message that is under way, and a
  // collective that waits for it ends only at the collectives' timeout.
  static void JoinAbandoned(absl::Duration patience = absl::Seconds(5));

 private:
  struct Attempt;

  void ShutDown();
  static void Abandon(std::thread connecting);
  static void AbortOne(const c10::intrusive_ptr<c10d::Backend>& backend);

  std::mutex mutex_;
  bool aborted_ = false;
  std::shared_ptr<Attempt> attempt_;  // under way; null = none
  // Duplicates of Gloo's descriptors, because a number that Gloo has closed may be another file's.
  std::vector<Fd> sockets_;
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_GROUP_ABORT_H_
