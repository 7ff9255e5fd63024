#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_TIMER_TABLE_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_TIMER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"

namespace ddprun::launcher {

// The watchdog's timers: each is a worker process's promise to finish something by a deadline
// (FileTimerClient of torch.distributed.elastic.timer).
// Pure; one thread. Bounds: kTimersMax timers, kScopeBytesMax bytes for a scope.
class TimerTable {
 public:
  static constexpr size_t kTimersMax = 4096;
  static constexpr size_t kScopeBytesMax = 1024;

  // A worker that did not keep its promise.
  struct Expired {
    uint32_t local_rank = 0;
    std::string scope;
    int signal = 0;
  };

  // Sets the timer of a process and a scope, or replaces it. `local_rank`: the worker that the
  // process is or belongs to. `signal`: what the worker gets at `deadline`; 0 = nothing.
  // Returns false, and changes nothing, when a bound is reached.
  bool Set(uint32_t local_rank, uint32_t pid, const std::string& scope, Instant deadline,
           int signal);
  void Release(uint32_t pid, const std::string& scope);
  // Removes the timers of a worker that ended.
  void Forget(uint32_t local_rank);
  void Clear() { timers_.clear(); }

  // When TakeExpired() is wanted next; infinite = not at all.
  Instant NextDeadline() const;
  // Takes what expired at or before `now`: for each worker the earliest timer with a signal, and
  // with it all other timers of that worker. By local rank.
  std::vector<Expired> TakeExpired(Instant now);

  size_t size() const { return timers_.size(); }

 private:
  struct Entry {
    uint32_t local_rank = 0;
    Instant deadline;
    int signal = 0;
  };
  std::map<std::pair<uint32_t, std::string>, Entry> timers_;  // by pid and scope
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_CORE_TIMER_TABLE_H_
