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
#include "launcher/keeper/keeper.h"

namespace ddprun::launcher {

// One worker to start. Bytes are passed on as they are.
struct SpawnRequest {
  uint64_t generation = 0;
  uint32_t local_rank = 0;
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", over the agent's own environment
  std::vector<std::string> unset;        // names removed from it
  Fd stdout_fd;                          // invalid = inherited
  Fd stderr_fd;
  // What is read from them, at most two: where this process dies, what it has left unread there is
  // written to its stderr.
  std::vector<Fd> rests;
  std::vector<uint32_t> cpus;  // that it and its children are bound to; empty = the agent's own
  // How long the parked process may take to become this worker; then, and when there is none, it is
  // started by exec(2). Zero: so at once.
  absl::Duration parked_patience;
};

// A process to start ahead (launcher/keeper/parked_process.h).
struct ParkRequest {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value", over the agent's own environment
  std::vector<std::string> unset;        // names removed from it
  std::vector<std::string> tail;         // variables that stand behind all others, in this order
};

// How a worker ended.
struct WorkerExit {
  uint64_t generation = 0;
  uint32_t local_rank = 0;
  pid_t pid = 0;
  int exit_code = 0;
  int signal = 0;  // 0 = it exited
  bool core_dumped = false;
  uint32_t swept = 0;  // processes that it left behind, killed; see keeper.proto
  Instant seen;        // when the keeper saw it
};

// A process that a worker has left behind.
struct LeftProcess {
  pid_t pid = 0;
  std::string command;
  int local_rank = -1;  // of the worker; -1 = it isn't known
};

// What a sweep leaves alone.
struct SweepOptions {
  std::vector<uint32_t> spared;  // local ranks of workers
  // How long from now processes that workers have left may go on: nothing but those that only clean
  // up (leftovers.h), until a time, or until they end, whether or not this agent lives.
  absl::Duration leftovers_time;
  bool leftovers_stay = false;
  // A restart may follow: what holds a GPU or a listening port has no time.
  bool strict = true;
};

// The agent's side of the keeper.
// Threads: the loop's.
class KeeperClient {
 public:
  struct Callbacks {
    // `parked`: it was the parked process.
    std::function<void(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked)>
        on_started;
    // `error` says what failed with its errno: "exec '/x/y': Permission denied (errno 13, EACCES)".
    std::function<void(uint64_t generation, uint32_t local_rank, absl::Status error)>
        on_start_failed;
    std::function<void(const WorkerExit&)> on_exited;
    std::function<void(uint64_t generation, uint32_t local_rank, pid_t pid, int signal)> on_stopped;
    // Nothing of the generation is left. `swept`: processes other than workers that were killed.
    std::function<void(uint64_t generation, uint32_t swept)> on_empty;
    // Just before on_empty: so many processes that workers have left have time left; `named` has
    // the first of them. Then: all of them are gone. And: one was killed `after` its time had
    // begun; `why`: "was still there", "held a GPU". Null: nobody asks.
    std::function<void(const std::vector<LeftProcess>& named, uint32_t count)> on_left;
    std::function<void()> on_leftovers_gone;
    std::function<void(const LeftProcess&, absl::Duration after, const std::string& why)>
        on_leftover_killed;
    // What the parked process says, and how it ended ("was killed by SIGKILL"). Null: nobody asks.
    std::function<void(const std::string& text)> on_parked_said;
    std::function<void(const std::string& how)> on_parked_ended;
    // The keeper itself died; workers died with it (parent-death signal) and what was reparented to
    // the agent (or to the warden, which does the same) has been killed, for which it had 2 s.
    // Nothing else is called after this.
    std::function<void(absl::Status why)> on_keeper_lost;
    // True for a child of the agent that is not the keeper's affair (the service child): left alone
    // when the keeper is lost. Null = there is none.
    std::function<bool(pid_t pid)> is_own_child;
  };

  // Makes the process a subreaper (PR_SET_CHILD_SUBREAPER), which gets what a lost keeper leaves.
  // A callback may destroy the client. Destroying it ends the keeper with all that is below it, and
  // waits for that up to 500 ms.
  static std::unique_ptr<KeeperClient> Create(EventLoop* loop, KeeperProcess keeper,
                                              Callbacks callbacks);
  virtual ~KeeperClient() = default;

  // Errors: INVALID_ARGUMENT — no argv; RESOURCE_EXHAUSTED — more than 8 MiB; FAILED_PRECONDITION —
  // the keeper is lost. What fails later comes as on_start_failed. Not before on_empty of the
  // generation before: a keeper that is sweeping refuses (EBUSY).
  virtual absl::Status Spawn(SpawnRequest request) = 0;
  // To the process groups of all live workers of the generation but those of the local ranks
  // `spared`; SIGCONT follows one that asks for the end (TERM, INT, HUP, QUIT), so that who is
  // stopped sees it.
  virtual void Signal(uint64_t generation, int signal_number,
                      const std::vector<uint32_t>& spared) = 0;
  // The same to one worker, if it still lives.
  virtual void SignalWorker(uint64_t generation, pid_t pid, int signal_number) = 0;
  // SIGKILLs all that is left of the generation until nothing is but what the options leave alone;
  // on_empty follows. A process that the kernel can't kill yet (state D) delays that without bound.
  // Spared workers stay, with what descends from them, until they are kept or swept.
  virtual void Sweep(uint64_t generation, const SweepOptions& options) = 0;
  // What earlier generations have left has no more time than this, and holds no GPU or port.
  virtual void LimitLeftovers(absl::Duration time) = 0;
  // Takes a worker that the last sweep spared into this generation: on_started follows; or
  // on_start_failed, when it has ended meanwhile. Errors: FAILED_PRECONDITION — the keeper is lost.
  virtual absl::Status Keep(uint64_t generation, uint32_t local_rank) = 0;
  // Starts the process that is to become workers. It stays over sweeps, and there is one at most:
  // asked for a second one, on_parked_ended says that it could not be started. Errors: as Spawn().
  virtual absl::Status Park(const ParkRequest& request) = 0;
  // Ends it; on_parked_ended follows.
  virtual void Unpark() = 0;
  // Gives the keeper away as it is; nothing is called after this. Requires: it isn't our child.
  virtual KeeperProcess Release() = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_KEEPER_CLIENT_H_
