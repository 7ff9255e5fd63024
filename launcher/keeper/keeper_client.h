#ifndef DDPRUN_LAUNCHER_KEEPER_KEEPER_CLIENT_H_
#define DDPRUN_LAUNCHER_KEEPER_KEEPER_CLIENT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/instant.h"
#include "launcher/core/death_facts.h"
#include "launcher/keeper/keeper.h"

namespace ddprun::launcher {

// One worker to start. Strings are passed on byte by byte.
struct SpawnRequest {
  uint64_t generation = 0;
  uint32_t local_rank = 0;
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", over the agent's own environment
  std::vector<std::string> unset;        // names removed from it
  Fd stdout_fd;                          // invalid = inherited
  Fd stderr_fd;
  // The ends from which this process reads the worker's output, at most two. If this process dies,
  // the keeper writes what is unread in them to its stderr.
  std::vector<Fd> rests;
  // The CPUs that the worker and its children are bound to; empty = the agent's.
  std::vector<uint32_t> cpus;
  // How long the fork server may take to fork this worker. After that, and if there is no fork
  // server, the worker is started by exec(2). Zero = by exec(2) at once.
  absl::Duration parked_patience;
};

// A fork server to start (launcher/keeper/parked_process.h).
struct ParkRequest {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value", over the agent's own environment
  std::vector<std::string> unset;        // names removed from it
  std::vector<std::string> tail;         // variables that stand behind all others, in this order
};

// A process that a worker has left behind.
struct LeftProcess {
  pid_t pid = 0;
  std::string command;
  int local_rank = -1;  // of the worker; -1 = not known
};

// The processes that a sweep leaves alone.
struct SweepOptions {
  std::vector<uint32_t> spared;  // local ranks of workers
  // How long from now leftovers may run. Zero: only those that clean up may (leftovers.h).
  absl::Duration leftovers_time;
  // Leftovers may run until they end, even if this agent ends first.
  bool leftovers_stay = false;
  // A restart may follow, so a leftover that holds a GPU or a listening port is killed at once.
  bool strict = true;
};

// The agent's side of the keeper.
// Threads: the loop's.
class KeeperClient {
 public:
  struct Callbacks {
    // `parked`: the fork server forked the worker.
    std::function<void(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked)>
        on_started;
    // `error` says what failed with its errno: "exec '/x/y': Permission denied (errno 13, EACCES)".
    std::function<void(uint64_t generation, uint32_t local_rank, absl::Status error)>
        on_start_failed;
    // `swept`: processes that the worker left behind, killed; see keeper.proto.
    std::function<void(uint64_t generation, WorkerEnd end, uint32_t swept)> on_exited;
    std::function<void(uint64_t generation, uint32_t local_rank, pid_t pid, int signal)> on_stopped;
    // No process of the generation is left. `swept`: processes other than workers that were killed.
    std::function<void(uint64_t generation, uint32_t swept)> on_empty;
    // Just before on_empty: `count` leftovers have time left; `named` has the first of them. This
    // callback and the next three may be null.
    std::function<void(const std::vector<LeftProcess>& named, uint32_t count)> on_left;
    // All of them are gone.
    std::function<void()> on_leftovers_gone;
    // One was killed `after` its time had begun; `why`: "was still there", "held a GPU".
    std::function<void(const LeftProcess&, absl::Duration after, const std::string& why)>
        on_leftover_killed;
    // The fork server's texts, and how it ended ("was killed by SIGKILL"). May be null.
    std::function<void(const std::string& text)> on_parked_said;
    std::function<void(const std::string& how)> on_parked_ended;
    // The keeper itself died. Its workers died with it (parent-death signal), and orphans that came
    // to the agent (or to the warden, which does the same) were killed, within 2 s. No callback
    // follows.
    std::function<void(absl::Status why)> on_keeper_lost;
    // True for a child of the agent that has nothing to do with the keeper (the service child): it
    // is left alone when the keeper is lost. Null = there is none.
    std::function<bool(pid_t pid)> is_own_child;
  };

  // Makes this process a subreaper (PR_SET_CHILD_SUBREAPER), so that the orphans of a lost keeper
  // become its children. A callback may destroy the client. The destructor ends the keeper and its
  // tree, and waits up to 500 ms for that.
  static std::unique_ptr<KeeperClient> Create(EventLoop* loop, KeeperProcess keeper,
                                              Callbacks callbacks);
  virtual ~KeeperClient() = default;

  // Errors: INVALID_ARGUMENT — no argv; RESOURCE_EXHAUSTED — more than 8 MiB; FAILED_PRECONDITION —
  // the keeper is lost. Later failures are reported by on_start_failed. Requires: on_empty of the
  // generation before was called; a keeper that is sweeping refuses a start (EBUSY).
  virtual absl::Status Spawn(SpawnRequest request) = 0;
  // Signals the process groups of all live workers of the generation but those of the local ranks
  // `spared`. SIGCONT follows a signal that asks for the end (TERM, INT, HUP, QUIT), so that a
  // stopped worker handles it.
  virtual void Signal(uint64_t generation, int signal_number,
                      const std::vector<uint32_t>& spared) = 0;
  // Signals the process group of one worker in the same way, if the worker lives.
  virtual void SignalWorker(uint64_t generation, pid_t pid, int signal_number) = 0;
  // SIGKILLs the processes of the generation, except those that the options leave alone, until none
  // is left; on_empty follows. A process in state D, which SIGKILL doesn't end, delays that without
  // bound. Spared workers stay with their descendants until Keep() or the next Sweep().
  virtual void Sweep(uint64_t generation, const SweepOptions& options) = 0;
  // Limits the time of leftovers of earlier generations, and kills those that hold a GPU or a port.
  virtual void LimitLeftovers(absl::Duration time) = 0;
  // Takes a worker that the last sweep spared into this generation. on_started follows, or
  // on_start_failed if the worker has ended meanwhile. Errors: FAILED_PRECONDITION — the keeper is
  // lost.
  virtual absl::Status Keep(uint64_t generation, uint32_t local_rank) = 0;
  // Starts the fork server, which outlives sweeps. There is one at most: for a second one,
  // on_parked_ended reports that it could not be started. Errors: as Spawn().
  virtual absl::Status Park(const ParkRequest& request) = 0;
  // Ends the fork server; on_parked_ended follows.
  virtual void Unpark() = 0;
  // Gives the keeper away in its current state. No callback and no other function may be called
  // after this. Requires: the keeper isn't our child.
  virtual KeeperProcess Release() = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_KEEPER_CLIENT_H_
