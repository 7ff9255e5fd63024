#ifndef DDPRUN_LAUNCHER_KEEPER_PARKED_PROCESS_H_
#define DDPRUN_LAUNCHER_KEEPER_PARKED_PROCESS_H_

#include <poll.h>
#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "base/instant.h"
#include "launcher/keeper/exec_child.h"

namespace ddprun::launcher {

// A worker that the parked process is asked to become, with all that exec(2) would need, should it
// not.
struct ParkedStart {
  uint64_t generation = 0;
  uint32_t local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // complete
  std::vector<uint32_t> cpus;
  Fd stdin_fd;   // invalid = the parked process's own; exec(2) gives ours
  Fd stdout_fd;  // invalid = ours
  Fd stderr_fd;
  bool checks = false;  // it may be older than what it has imported is now

  // The parked process was started before our agent: its streams are others, and it has to look
  // whether what it has imported is still the same.
  void OutlivesAgents();
};

// The keeper's side of a process that was started ahead and can become workers: it forks the next
// one ahead, which orphans itself when it is asked for, so that it is the keeper's own child like
// any worker.
//
// Ahead, because a fork of a process with torch copies page tables for 20 to 40 ms. Only one is
// ahead: each costs a fork beside training after every start.
//
// They speak over a SOCK_SEQPACKET channel, whose number the process finds in DDPRUN_WARM, in the
// packets of launcher/keeper/channel.h:
// - the process says texts, which are the agent's affair;
// - it is asked for a worker: strings that each end in NUL (the keeper's pid; CPUs with commas
//   between; which streams follow, "ioe", and "c" when it should look first whether the files that
//   it has imported are still the same; then the environment, "NAME=value" each), and descriptors:
//   a socket for answers, stdin, stdout, stderr.
// Over the answers' socket come: "taken" at once; "pid N" when the new process is our child; "set"
// when all that can fail is behind it. It runs on when it is told "go", and ends when the socket is
// closed before. The end of the socket before "set" means that it failed.
//
// Threads: the keeper's only one.
class ParkedProcess {
 public:
  // What came of starts since the last look.
  struct Outcome {
    struct Set {
      ParkedStart start;
      pid_t pid = 0;  // our child, not reaped, perhaps dead
      Fd answers;     // Go() lets it run
    };
    std::vector<Set> set;
    std::vector<ParkedStart> failed;  // to be started by exec(2)
  };
  // How the process ended.
  struct End {
    int exit_code = 0;
    int signal = 0;
    std::optional<StartError> start_error;
  };

  // Starts the process. DDPRUN_WARM is added to the environment, in front of `tail`, which stands
  // at its very end. Errors: of socketpair(2), fork(2). Requires: pid() == 0.
  std::optional<StartError> Start(std::vector<std::string> argv,
                                  std::vector<std::string> environment,
                                  const std::vector<std::string>& tail, int cgroup_fd);
  // Kills it; its end is met by OnDead(). It answers nobody from now on.
  void Kill();
  // Whether starts may be asked of it.
  bool Answers() const { return pid_ != 0 && !killed_; }
  // 0 = there is none; until it is reaped.
  pid_t pid() const { return pid_; }
  // Must be called when pid() is dead, before it is reaped; gives up what it was asked for.
  End OnDead(const siginfo_t& child);
  // Asks for a worker, within `patience`. Gives the start back when that can't be.
  std::optional<ParkedStart> Ask(ParkedStart start, absl::Duration patience, Instant now);
  // Gives up the starts of a generation (of all: nullopt), and gives back what was given up.
  std::vector<ParkedStart> Cancel(std::optional<uint64_t> generation);
  // True while a process may still come of what was cancelled.
  bool Forking() const { return !cancelled_.empty(); }
  // Whether the child was forked by the parked process and isn't a worker yet.
  bool IsOnItsWay(pid_t child) const;

  // What ppoll(2) should watch.
  void AddTo(std::vector<pollfd>* fds) const;
  // When Look() is wanted although nothing came; infinite = never.
  Instant NextDeadline() const;
  // Takes in what came.
  Outcome Look(Instant now);
  std::vector<std::string> TakeTexts();

  // Lets a process that is set run. It may be gone: then its end is met like any worker's.
  static void Go(const Fd& answers);

 private:
  struct Pending {
    ParkedStart start;
    Fd answers;
    Instant deadline;
    bool taken = false;
    pid_t pid = 0;  // 0 = not known yet
  };
  enum class Step { kWaits, kSet, kFailed };

  static Step Read(Pending* pending);
  Step ReadBefore(Instant now, Pending* pending);
  static void GiveUp(const Pending& pending);
  void ReadTexts();
  void ReadStartReport();

  pid_t pid_ = 0;
  bool killed_ = false;
  Fd channel_;       // valid while it is read
  Fd start_report_;  // valid until exec(2) succeeded or failed
  std::optional<StartError> start_error_;
  std::list<Pending> starts_;
  std::list<Pending> cancelled_;  // taken; until their sockets end
  std::vector<std::string> texts_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_PARKED_PROCESS_H_
