#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/death_facts.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

// R3: how long a worker that can rejoin has to let go of (release) its generation; the stop grace,
// if that is shorter.
inline constexpr absl::Duration kLetGoBound = absl::Seconds(5);
// R3: how long a worker that has let go of a generation waits for the generation's end before the
// worker counts as failed.
inline constexpr absl::Duration kForsakenBound = absl::Seconds(60);

// For people: "was killed by SIGKILL", "exited with code 3", "could not be started: …".
std::string DescribeEnd(const WorkerEnd& end);

// What the caller must do to the group's processes.
enum class GroupAction {
  kNone,
  kSignal,  // send stop_signal() to all live workers; the grace period runs from now
  kSweep,   // kill all that is left, and call OnEmpty() when nothing is
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
// generation (destroy its process groups and ask for a new rank). Then the sweep spares it, and
// from OnEmpty on its process is kept for the next generation. A worker that takes longer is
// killed.
//
// Invariants: a worker is counted as ended once; failures() holds only workers that failed by
// themselves (before any signal of ours was sent); nothing starts before OnEmpty(); let_go implies
// can_rejoin.
// Pure; one thread.
class WorkerGroup {
 public:
  enum class Phase { kIdle, kRunning, kStopping, kSweeping };

  // Requires: kIdle. `base_rank`: global rank of local rank 0. Kept workers belong to the new
  // generation from here on, and can rejoin the next one, too.
  void Begin(rendezvous::Generation generation, uint32_t base_rank, uint32_t worker_count);

  // Returns true when all workers run. Unknown or repeated starts are ignored.
  bool OnStarted(uint32_t local_rank, uint32_t pid);

  // A worker has ended. Returns kSweep when it was the last one. In kIdle a kept worker has ended,
  // and is no longer kept.
  GroupAction OnEnded(Instant now, const WorkerEnd& end);

  // A worker can rejoin the next generation, or no longer can. Ignored once the group is stopped.
  // `same_place`: it can only if its rank and the number of workers stay.
  void OnCanRejoin(uint32_t local_rank, bool can, bool same_place = false);
  // A worker has let go of its generation. Returns kSweep when it was the last one to wait for.
  GroupAction OnLetGo(Instant now, uint32_t local_rank);
  // No worker is spared from now on. Requires: not kStopping.
  void SpareNobody();
  // Kills the kept workers: returns kSweep if there are any. Requires: kIdle.
  // `sent`: now by the keeper's clock.
  GroupAction DropKept(Instant now, Instant sent);
  // Whether any of them depends on its place.
  bool KeepsPlaces() const;
  // The kept workers are dead. Requires: kIdle.
  void ForgetKept() { SpareNobody(); }

  // Begins to stop the group with `signal_number`, which only workers that can't rejoin get.
  // Returns kNone if the group is already being stopped or nothing runs, kSweep if there is no
  // worker to wait for. `sent`: now by the keeper's clock, as WorkerEnd.seen.
  GroupAction Stop(Instant now, Instant sent, int signal_number, absl::Duration grace);

  // Shortens a stop that is under way: workers that can't rejoin are killed now, the others keep
  // their time to let go. Returns kSignal; kNone if the group isn't being stopped, or was stopped
  // by SIGKILL. Requires: spared() isn't empty.
  GroupAction CutGrace();

  // Gives up waiting: returns kSweep unless the group is already being swept. `sent`: as above.
  GroupAction KillNow(Instant now, Instant sent);

  // The deadline has come. Returns kSweep when the grace period is over; kSignal when TakeLate()
  // has workers to kill. If a sweep takes longer than 5 s (R3), unclean() becomes true.
  GroupAction OnTimer(Instant now, Instant sent);
  // The local ranks of workers that haven't let go in time; in kRunning of workers that let go of a
  // generation that didn't end. Each is returned once.
  std::vector<uint32_t> TakeLate();

  // Nothing is left. Requires: kSweeping.
  void OnEmpty();

  // Why the workers are about to be stopped. Requires: kRunning.
  void Explain(std::string why);
  // Whether a worker is suspect of hanging.
  void SetAnySuspect(bool any) { any_suspect_ = any; }

  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const;

  Phase phase() const { return phase_; }
  rendezvous::Generation generation() const { return generation_; }
  int stop_signal() const { return stop_signal_; }
  // Local ranks that signals and sweeps leave out; in kIdle those of the kept workers.
  std::vector<uint32_t> spared() const;
  bool AllCanRejoin() const { return spared().size() == workers_.size(); }
  // The worker's pid; 0 = it was never started.
  uint32_t pid(uint32_t local_rank) const { return workers_.at(local_rank).pid; }
  // The worker is of an earlier generation, and goes on.
  bool is_kept(uint32_t local_rank) const {
    return local_rank < workers_.size() && workers_[local_rank].kept;
  }
  // Whether each worker has ended or let go.
  bool AllSettled() const;
  // All workers ended with 0 and no stop was asked for.
  bool succeeded() const;
  bool all_started() const { return started_ == workers_.size(); }
  // Processes outlived KILL and the bound.
  bool unclean() const { return unclean_; }
  // Workers that failed by themselves, in the order seen, including a worker that we stopped after
  // a peer's error had named it as failed.
  const std::vector<WorkerEnd>& failures() const { return failures_; }
  // Workers that ended with another status than 0 after we stopped the group, in the order seen.
  const std::vector<WorkerEnd>& stopped() const { return stopped_; }
  // Local ranks of workers that ended with 0 by themselves; kFailuresMax at most.
  std::vector<uint32_t> left() const;
  uint32_t base_rank() const { return base_rank_; }
  // The reason of the current or agreed stop; "" = there is none.
  const std::string& why() const { return why_; }
  bool any_suspect() const { return any_suspect_; }

  // The end of a worker of this group, in the form of the report to the service.
  rendezvous::WorkerFailure Describe(const WorkerEnd& end, const rendezvous::NodeId& node_id,
                                     const std::string& hostname) const;

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  struct Worker {
    bool started = false;
    bool ended = false;  // also if it never started
    bool kept = false;   // its process is from an earlier generation
    bool can_rejoin = false;
    bool let_go = false;  // only if can_rejoin
    bool same_place = false;
    uint32_t pid = 0;
    Instant left = Instant::Infinite();  // when it exited with 0 by itself, by the keeper's clock
  };

  GroupAction Sweep(Instant now);
  void GiveUpLate();
  // Whether the worker has an error of its own, and a peer that ended before names the worker.
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
  std::vector<uint32_t> late_;       // for the next TakeLate()
  std::vector<WorkerEnd> failures_;  // kFailuresMax at most
  std::vector<WorkerEnd> stopped_;   // kFailuresMax at most
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_WORKER_GROUP_H_
