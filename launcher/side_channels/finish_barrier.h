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

// Where workers of --run_path wait at their end until all others of their node are there, as in
// torchrun (queue_finished_reading_event in torch/distributed/elastic/multiprocessing/api.py): a
// script that leaves its process group to the end of the process would otherwise break that of
// those who are still at work.
//
// A unix socket: who has finished connects and reads until the end of the stream, which comes when
// each worker has finished or is gone, when the agent dies, and when nothing better can be done.
// Threads: the loop's.
class FinishBarrier {
 public:
  // `finished`: the worker has nothing left to do but to wait for others.
  // Errors: of socket(2), bind(2) and listen(2), with the path.
  static absl::StatusOr<std::unique_ptr<FinishBarrier>> Create(
      EventLoop* loop, const std::string& path, std::function<void(uint32_t local_rank)> finished);
  ~FinishBarrier();

  // Before `count` workers are spawned; nobody is left of those before.
  void Begin(uint32_t count);
  void OnStarted(uint32_t local_rank, pid_t pid);
  void OnEnded(uint32_t local_rank);

 private:
  struct Worker {
    pid_t pid = 0;  // 0 = not started
    bool done = false;
    Fd waits;  // valid: it has finished, and is held
  };

  FinishBarrier(EventLoop* loop, Fd listener, std::function<void(uint32_t local_rank)> finished);
  void Accept();
  bool AllAreStarted() const;
  void Hold(pid_t pid, Fd connection);
  void LetGoWhenAllAreDone();

  Fd listener_;
  std::function<void(uint32_t local_rank)> finished_;
  std::map<uint32_t, Worker> workers_;  // by local rank
  std::map<pid_t, Fd> early_;           // who connected before all workers were told as started
  std::unique_ptr<FdWatch> acceptable_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_FINISH_BARRIER_H_
