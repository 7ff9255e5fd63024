#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// R3: how long a worker that can rejoin has to let go of its generation; the stop grace, if that is
// shorter.
inline constexpr absl::Duration kLetGoBound = absl::Seconds(5);
// R3: how long who has let go of a generation waits for its end before it counts as failed.
inline constexpr absl::Duration kForsakenBound = absl::Seconds(60);

// How one worker ended, as the shell found it: the keeper's facts and what the worker left behind.
struct WorkerEnd {
  uint32_t local_rank = 0;
  uint32_t pid = 0;  // 0: it never started
  int exit_code = 0;
  int signal = 0;  // 0 = it exited
  bool core_dumped = false;
  std::string start_error;
  std::string message;
  std::string traceback;
  std::string error_file;
  std::string stderr_tail;
  std::vector<std::string> facts;  // as in rendezvous::WorkerFailure
  uint64_t wall_time_ms = 0;
  Instant seen;            // when the keeper saw it
  bool hung = false;       // it made no progress, so we end it (R13); `message` says what was found
  bool preflight = false;  // it found before the run what prevents it; `message` says what

  bool ok() const { return exit_code == 0 && signal == 0 && start_error.empty(); }
};

// For people: "was killed by SIGKILL", "exited with code 3", "could not be started: …".
std::string DescribeEnd(const WorkerEnd& end);

// What the group wants done to its processes.
enum class GroupAction {
  kNone,
  kSignal,  // stop_signal() to all live workers; the grace runs from now
  kSweep,   // kill all that is left and report when it is empty
};

// The workers of one generation on this node:
//
//            Begin            Stop                    grace over, KillNow, or all
//    kIdle ────────► kRunning ─────► kStopping ──┐    ended or let go of it
//      ▲                │ all ended              ▼
//      │                └──────────────────► kSweeping
//      └───────────────── OnEmpty ───────────────┘
//
// A worker that *can rejoin* isn't signalled by Stop: it has kLetGoBound to let go of its
// generation, which spares it in the sweep; from OnEmpty on it is kept, and waits for the next
// generation as the process that it is. Who takes longer is killed.
//
// Invariants: a worker is counted as ended once; failures() holds only workers that failed by
// themselves (before any signal of ours was sent); nothing starts before OnEmpty(); only who can
// rejoin has let go.
// Pure; one thread.
class WorkerGroup {
 public:
  enum class Phase { kIdle, kRunning, kStopping, kSweeping };

  // Requires: kIdle. `base_rank`: global rank of local rank 0. Those that are kept belong to the
  // new generation from here on: they can rejoin the next one, too.
  void Begin(rendezvous::Generation generation, uint32_t base_rank, uint32_t worker_count);

  // True when it was the last one: all workers run. Unknown or repeated starts are ignored.
  bool OnStarted(uint32_t local_rank, uint32_t pid);

  // Takes the end of a worker. The answer is what to do next: kSweep when it was the last one. In
  // kIdle it is that of a worker that was kept, and no more is.
  GroupAction OnEnded(Instant now, const WorkerEnd& end);

  // A worker is able to rejoin the next generation, or no longer. Too late once it is stopped.
  void OnCanRejoin(uint32_t local_rank, bool can);
  // It has let go of its generation. kSweep when it was the last that was waited for.
  GroupAction OnLetGo(Instant now, uint32_t local_rank);
  // Nobody is spared. Requires: it isn't kStopping.
  void SpareNobody();
  // Kills those that are kept: kSweep, if there are any. Requires: kIdle.
  GroupAction DropKept(Instant now);
  // Those that are kept are dead. Requires: kIdle.
  void ForgetKept() { SpareNobody(); }

  // Begins to stop with `signal_number`, which is for those that can't rejoin; kNone when that is
  // under way or nothing runs, kSweep when nobody is left to wait for. `sent`: now by the keeper's
  // clock, as WorkerEnd.seen.
  GroupAction Stop(Instant now, Instant sent, int signal_number, absl::Duration grace);

  // Gives up waiting: kSweep unless that is under way. `sent`: as above.
  GroupAction KillNow(Instant now, Instant sent);

  // The deadline has come: kSweep when the grace is over; kSignal when TakeLate() says whom to
  // kill. After a sweep's own bound (5 s, R3) unclean() turns true.
  GroupAction OnTimer(Instant now, Instant sent);
  // The local ranks of workers that have not let go in time; in kRunning of those that let go of a
  // generation that didn't end. Each is told once.
  std::vector<uint32_t> TakeLate();

  // Nothing is left. Requires: kSweeping.
  void OnEmpty();

  // Why the workers are about to be stopped. Requires: kRunning.
  void Explain(std::string why);
  // Whether a look has found one of them suspect of hanging.
  void SetAnySuspect(bool any) { any_suspect_ = any; }

  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const;

  Phase phase() const { return phase_; }
  rendezvous::Generation generation() const { return generation_; }
  int stop_signal() const { return stop_signal_; }
  bool stop_requested() const { return stop_requested_; }
  // Local ranks that signals and sweeps leave out; in kIdle those that are kept.
  std::vector<uint32_t> spared() const;
  bool AllCanRejoin() const { return spared().size() == workers_.size(); }
  // 0 = it was never started.
  uint32_t pid(uint32_t local_rank) const { return workers_.at(local_rank).pid; }
  // The worker is of an earlier generation, and goes on.
  bool is_kept(uint32_t local_rank) const {
    return local_rank < workers_.size() && workers_[local_rank].kept;
  }
  // Each has ended, or let go.
  bool AllSettled() const;
  // All workers ended with 0 and no stop was asked for.
  bool succeeded() const;
  bool all_started() const { return started_ == workers_.size(); }
  // Processes outlived KILL and the bound.
  bool unclean() const { return unclean_; }
  // Workers that failed by themselves, in the order seen; also one that we stopped, if a peer's
  // error says that it had failed before.
  const std::vector<WorkerEnd>& failures() const { return failures_; }
  // Workers that ended otherwise than well after we stopped the group, in the order seen.
  const std::vector<WorkerEnd>& stopped() const { return stopped_; }
  // Local ranks of workers that ended with 0 by themselves; kFailuresMax at most.
  std::vector<uint32_t> left() const;
  uint32_t base_rank() const { return base_rank_; }
  // Of the stop that is under way or agreed; "" = there is none.
  const std::string& why() const { return why_; }
  bool any_suspect() const { return any_suspect_; }

  // The end of a worker of this group, as the service is told.
  rendezvous::WorkerFailure Describe(const WorkerEnd& end, const rendezvous::NodeId& node_id,
                                     const std::string& hostname) const;

  // What doesn't hold of the fields below; "" = all of it does.
  std::string BrokenInvariant() const;

 private:
  struct Worker {
    bool started = false;
    bool ended = false;  // also of one that never started
    bool kept = false;   // it was one of the generation before
    bool can_rejoin = false;
    bool let_go = false;  // only if can_rejoin
    uint32_t pid = 0;
    Instant left = Instant::Infinite();  // when it ended with 0 by itself, by the keeper's clock
  };

  GroupAction Sweep(Instant now);
  void GiveUpLate();
  // Whether it has an error of its own, which a worker that failed before it has heard of.
  bool IsNamedByPeer(const WorkerEnd& end) const;
  std::string LeftFact(const WorkerEnd& end) const;

  Phase phase_ = Phase::kIdle;
  rendezvous::Generation generation_;  // 0 only before the first Begin
  uint32_t base_rank_ = 0;
  std::vector<Worker> workers_;
  uint32_t started_ = 0;         // of workers_
  uint32_t ended_ = 0;           // of workers_; all of them only in kSweeping and kIdle
  bool stop_requested_ = false;  // always in kStopping
  bool unclean_ = false;         // only in kSweeping
  int stop_signal_ = 0;
  // By the keeper's clock; finite only with stop_requested_.
  Instant stop_began_ = Instant::Infinite();
  Instant grace_end_ = Instant::Infinite();
  Instant let_go_end_ = Instant::Infinite();    // finite only in kStopping; not after the grace
  Instant forsaken_end_ = Instant::Infinite();  // finite only in kRunning
  Instant sweep_end_ = Instant::Infinite();
  std::string why_;  // "" in kIdle
  bool any_suspect_ = false;
  std::vector<uint32_t> late_;       // told by the next TakeLate()
  std::vector<WorkerEnd> failures_;  // kFailuresMax at most
  std::vector<WorkerEnd> stopped_;   // kFailuresMax at most
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_
