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

// A worker that the fork server is asked to fork, with all that exec(2) needs if the fork fails.
struct ParkedStart {
  uint64_t generation = 0;
  uint32_t local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // complete
  std::vector<uint32_t> cpus;
  Fd stdin_fd;   // invalid = the parked process's own; exec(2) gives ours
  Fd stdout_fd;  // invalid = ours
  Fd stderr_fd;
  bool checks = false;  // the files that the server has imported may have changed since

  // For a fork server that was started before our agent: its streams are others, and it has to
  // check whether the files that it has imported are still the same.
  void OutlivesAgents();
};

// The keeper's side of a fork server (the parked process): an interpreter or program that was
// started ahead and forks workers. The server forks the next worker ahead; when asked for it, that
// process orphans itself and so becomes the keeper's own child, like any worker.
//
// The worker is forked ahead, because a fork of a process with torch copies page tables for 20 to
// 40 ms. Only one is ahead: each costs a fork beside training after every start.
//
// The protocol uses a SOCK_SEQPACKET channel and the packets of launcher/keeper/channel.h. The
// server finds the channel's descriptor number in DDPRUN_WARM.
// - The server sends texts, which the keeper passes on to the agent.
// - The keeper requests a worker: strings that each end in NUL (the keeper's pid; CPUs with commas
//   between; which streams follow, "ioe", and "c" if the server must first check that the files
//   that it has imported are unchanged; then the environment, "NAME=value" each), and descriptors:
//   a socket for answers, stdin, stdout, stderr.
// The answers are "taken" at once; "pid N" when the new process is our child; "set" when nothing
// can fail any more. The new process runs on when it reads "go", and ends if the socket is closed
// first. End of file before "set" means that the start failed.
//
// Threads: the keeper's only one.
class ParkedProcess {
 public:
  // How starts ended since the last Look().
  struct Outcome {
    struct Set {
      ParkedStart start;
      pid_t pid = 0;  // our child, not reaped, perhaps dead
      Fd answers;     // Go() lets it run
    };
    std::vector<Set> set;
    std::vector<ParkedStart> failed;  // the caller starts these by exec(2)
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
  // Kills the server, which answers no request from now on. OnDead() must still be called.
  void Kill();
  // Whether starts may be asked of it.
  bool Answers() const { return pid_ != 0 && !killed_; }
  // The server's pid until it is reaped; 0 = there is none.
  pid_t pid() const { return pid_; }
  // Must be called when pid() is dead, before it is reaped. Gives up the starts under way.
  End OnDead(const siginfo_t& child);
  // Requests a worker, which must be set within `patience`. Returns `start` if it can't be asked
  // for.
  std::optional<ParkedStart> Ask(ParkedStart start, absl::Duration patience, Instant now);
  // Gives up the starts of a generation (of all: nullopt), and returns them.
  std::vector<ParkedStart> Cancel(std::optional<uint64_t> generation);
  // True while a cancelled start may still produce a process.
  bool Forking() const { return !cancelled_.empty(); }
  // Whether the child was forked by the parked process and isn't a worker yet.
  bool IsOnItsWay(pid_t child) const;

  // Adds the descriptors for ppoll(2).
  void AddTo(std::vector<pollfd>* fds) const;
  // When Look() is wanted although nothing came; infinite = never.
  Instant NextDeadline() const;
  // Reads texts and answers.
  Outcome Look(Instant now);
  std::vector<std::string> TakeTexts();

  // Lets a process that is set run. If the process is gone, its end is handled like any worker's.
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
  Fd channel_;       // valid until its end of file
  Fd start_report_;  // valid until exec(2) succeeded or failed
  std::optional<StartError> start_error_;
  std::list<Pending> starts_;
  std::list<Pending> cancelled_;  // taken; until their sockets end
  std::vector<std::string> texts_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_PARKED_PROCESS_H_
