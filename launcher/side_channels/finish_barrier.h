#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_FINISH_BARRIER_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_FINISH_BARRIER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// A barrier at the end of workers of --run_path: each waits for all others of the node, as in
// torchrun (queue_finished_reading_event in torch/distributed/elastic/multiprocessing/api.py).
// Without it, a script that doesn't destroy its process group before it exits would break the group
// of workers that still compute.
//
// A worker that has finished connects to a unix socket and reads until end of file. That comes when
// each worker has finished or is gone, when the agent dies, and after an error.
// Threads: the loop's.
class FinishBarrier {
 public:
  // `finished`: called when a worker only waits for others.
  // Errors: of socket(2), bind(2) and listen(2), with the path.
  static absl::StatusOr<std::unique_ptr<FinishBarrier>> Create(
      EventLoop* loop, const std::string& path, std::function<void(uint32_t local_rank)> finished);
  ~FinishBarrier();

  // To be called before `count` workers are spawned, when no earlier worker is left.
  void Begin(uint32_t count);
  void OnStarted(uint32_t local_rank, pid_t pid);
  void OnEnded(uint32_t local_rank);

 private:
  struct Worker {
    pid_t pid = 0;  // 0 = not started
    bool done = false;
    Fd waits;  // valid = the worker has finished and waits
  };

  FinishBarrier(EventLoop* loop, Fd listener, std::function<void(uint32_t local_rank)> finished);
  void Accept();
  bool AllAreStarted() const;
  void Hold(pid_t pid, Fd connection);
  void LetGoWhenAllAreDone();

  Fd listener_;
  std::function<void(uint32_t local_rank)> finished_;
  std::map<uint32_t, Worker> workers_;  // by local rank
  std::map<pid_t, Fd> early_;           // connections that came before all OnStarted() calls
  std::unique_ptr<FdWatch> acceptable_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_FINISH_BARRIER_H_
