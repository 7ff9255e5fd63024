#ifndef DDPRUN_LAUNCHER_KEEPER_LEFTOVERS_H_
#define DDPRUN_LAUNCHER_KEEPER_LEFTOVERS_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The processes that ended workers have left, and until when each of them may end by itself.
//
// A worker's helpers outlive it for a moment by design: Python's resource tracker unlinks shared
// memory and semaphores once its last client is gone, torch_shm_manager does the same and removes
// its folder 2 s later, a detached upload may need minutes. A process that is killed at the moment
// of its worker's end has done none of that.
//
// An *origin* is the worker that a process descends from (by the tag in its environment, else its
// session). When the generation is over, all its origins get one deadline; a process that shows up
// later, because its own parent has ended, has the deadline of its origin, so that no chain of
// forks gets more. An origin is *strict* if a restart may follow: a process of it that holds a GPU
// or a listening port, which the next generation needs, has no time. Processes that only clean up
// have 3 s at least, whatever the deadline, and one that listens has 10 s at most, because a server
// doesn't end by itself.
//
// Invariant: every process here is a direct child of the keeper that has not been reaped.
// Threads: the keeper's only one. Time is the caller's.
class Leftovers {
 public:
  // How to look at a process; replaced in tests.
  struct Probe {
    std::function<std::string(pid_t)> command;  // the command line; "" = unknown
    std::function<std::string(pid_t)> holding;  // "a GPU", "port 6006", …; "" = nothing known
  };
  struct Process {
    pid_t pid = 0;
    std::string origin;
    std::string command;
    std::string holding;  // looked up once the origin has failed or has a deadline
    Instant since;        // when its time began
    bool cleans = false;  // it only cleans up
    bool looked = false;
    bool killed = false;
  };

  Leftovers();
  explicit Leftovers(Probe probe) : probe_(std::move(probe)) {}

  // A worker has ended. Params: failed: its leftovers are judged strictly from now on.
  void OnWorkerEnded(const std::string& origin, bool failed);
  // The generation is over: all origins that have no deadline get `now + time`, and so do those
  // that turn up while its processes are swept.
  void BeginDeadline(Instant now, absl::Duration time, bool strict);
  // Limits every deadline to `now + time`, and makes all origins strict.
  void Shorten(Instant now, absl::Duration time);

  // Takes in a direct child of the keeper. Returns why the child must be killed now; "" = it has
  // time left. Params: sweeps: the generation is over, and the child is one of its processes.
  std::string WhyKill(pid_t child, const std::string& origin, Instant now, bool sweeps);
  // The child was killed; it stays here until OnReaped(). Returns what is known of it.
  const Process& MarkKilled(pid_t child);
  // The child was reaped. Returns whether it was a leftover.
  bool OnReaped(pid_t child) { return processes_.erase(child) > 0; }

  bool Contains(pid_t child) const { return processes_.contains(child); }
  // Whether the child is here and has time left.
  bool IsLeft(pid_t child) const;
  // The processes with a deadline that have not been killed.
  std::vector<Process> Left() const;
  // Whether a process of an origin with a deadline is here, even killed but not reaped.
  bool AnyDated() const;
  // Forgets origins with a deadline that have no process left.
  void ForgetEmpty();
  bool empty() const { return processes_.empty(); }
  // The next deadline of a process that has not been killed; infinite = none.
  Instant NextDeadline() const;

 private:
  struct Origin {
    Instant deadline = Instant::Infinite();
    bool dated = false;  // `deadline` was set, perhaps to infinite
    bool strict = false;
  };

  Instant DeadlineOf(const Process& process) const;

  Probe probe_;
  Origin newest_;  // as set by the last BeginDeadline()
  std::map<std::string, Origin> origins_;
  std::map<pid_t, Process> processes_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_LEFTOVERS_H_
