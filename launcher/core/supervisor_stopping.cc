#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/signal_name.h"
#include "launcher/core/exit_status.h"
#include "launcher/core/supervisor.h"
#include "rendezvous/core/bounds.h"

// How the workers of a generation are stopped: by signals, or at one step of all ranks when a node
// is taken away (R14).
namespace ddprun::launcher {
namespace {

// When something fails after the commit: ranks that are just behind get to the stop step by then.
constexpr absl::Duration kJustBehind = absl::Milliseconds(250);

}  // namespace

// ------------------------------------------------------------- by signals

void Supervisor::OnMessage(const rendezvous::StopWorkers& stop) {
  if (phase_ == Phase::kEnding) return;
  if (group_.phase() != WorkerGroup::Phase::kIdle && stop.generation >= group_.generation()) {
    if (IsStoppingAtStep()) return HastenStop();
    // Where a worker hangs, nothing is left that could end well within a grace.
    const int signal_number = preempt_signal_ != 0 ? preempt_signal_ : SIGTERM;
    any_suspect_ ? KillGroup(stop.reason) : StopGroup(signal_number, stop.reason);
  } else if (succeeded_generation_ == stop.generation) {
    // All ended well here, so there is nothing to stop; a failure elsewhere restarts us too (R8).
    succeeded_generation_ = rendezvous::Generation();
    barrier_end_ = Instant::Infinite();
    EndStores(stop.reason);
    if (!LeavePreempted()) SendStopped(/*clean=*/true);
  }
}

void Supervisor::NoteStop(const std::string& why) {
  if (group_.phase() != WorkerGroup::Phase::kRunning) return;
  stop_reason_ = why;
  RecordFact("stop_begin",
             {{"generation", absl::StrCat(group_.generation().value())}, {"why", why}});
}

void Supervisor::KillGroup(const std::string& why) {
  NoteStop(why);
  Apply(group_.KillNow(now_), why);
}

void Supervisor::StopGroup(int signal_number, const std::string& why) {
  NoteStop(why);
  Apply(group_.Stop(now_, signal_number, config_.job.stop_grace), why);
}

// ------------------------------------------------------------- at a step

void Supervisor::OnEndingSignal(int number) {
  const bool waits = std::exchange(asked_signal_, 0) != 0 || preempt_signal_ != 0;
  if (waits || !CanAgree()) return LeaveOnSignal(number);  // later ones don't wait
  if (Preempts(number)) return BeginPreemption(number);
  const bool may_preempt = number == SIGTERM && config_.signals.term_preempts_who_asks;
  if (!may_preempt || !group_.all_started()) return LeaveOnSignal(number);
  asked_signal_ = number;
  LookAtStop(/*round=*/0, /*step=*/0);
}

// Whether a signal says that this node goes away.
bool Supervisor::Preempts(int number) const {
  if (config_.signals.Preempts(number)) return true;
  if (preempt_signal_ != 0) return number == preempt_signal_;
  return number == SIGTERM && config_.signals.term_preempts_who_asks && stop_committed_;
}

std::string Supervisor::WhyLeaving(int number, absl::string_view verb) const {
  const bool in_time = number == preempt_signal_ && !preempt_why_.empty();
  return in_time ? preempt_why_ : absl::StrCat(verb, SignalName(number));
}

// Whether there is something to agree about, and somebody to agree with.
bool Supervisor::CanAgree() const {
  if (phase_ != Phase::kStandby || !welcomed_) return false;
  // The node of the service goes last: it doesn't cut off others that still save.
  const bool others_save = stop_committed_ && hosts_service_ && IsIdle();
  return others_save || group_.phase() == WorkerGroup::Phase::kRunning;
}

void Supervisor::BeginPreemption(int number) {
  preempt_signal_ = number;
  const absl::Duration deadline = config_.preempt_deadline;
  if (!stop_committed_) preempt_bound_ = now_ + deadline / rendezvous::kReachingShare;
  if (IsIdle()) preempt_bound_ = now_ + deadline;
  Tell(TellUser::Level::kWarning,
       absl::StrCat(WhyLeaving(number, "got "),
                    ": this node is about to be taken away, so all workers of the job are to stop "
                    "at one step (a signal now: they get it at once)"));
  SendEvent(group_.generation(), rendezvous::Preempt{.reason = WhyLeaving(number),
                                                     .deadline = deadline,
                                                     .ends_job = hosts_service_,
                                                     .drained = drained_});
}

// --preempt_after: the last moment to stop and save.
void Supervisor::PreemptInTime() {
  preempt_at_ = Instant::Infinite();
  if (phase_ == Phase::kEnding || preempt_signal_ != 0) return;
  PreemptFor(absl::StrCat("its time is over (--preempt_after ",
                          absl::FormatDuration(config_.preempt_after), ")"));
}

// `ddprun drain` (R15): as if this node were taken away, but for the job, which waits for another.
void Supervisor::OnMessage(const rendezvous::Drain& drain) {
  if (phase_ == Phase::kEnding || drained_ || preempt_signal_ != 0) return;
  if (hosts_service_) {
    return Tell(TellUser::Level::kWarning,
                "this node has the rendezvous service, without which the job can't go on: it isn't "
                "drained");
  }
  drained_ = true;
  if (succeeded_generation_ != rendezvous::Generation()) {  // nothing is left here to be saved
    preempt_signal_ = SIGTERM;
    return Tell(TellUser::Level::kWarning,
                "this node is drained; its workers have ended well, so it leaves with the job, or "
                "when that restarts");
  }
  PreemptFor(drain.reason.empty() ? "drained" : absl::StrCat("drained: ", drain.reason));
}

void Supervisor::PreemptFor(std::string why) {
  preempt_why_ = std::move(why);
  RecordFact(drained_ ? "drain" : "preempt_time", {{"why", preempt_why_}});
  end_reason_ = preempt_why_;
  asked_signal_ = 0;
  if (CanAgree()) return BeginPreemption(SIGTERM);
  preempt_signal_ = SIGTERM;
  LeaveOnSignal(SIGTERM);
}

bool Supervisor::IsIdle() const { return group_.phase() == WorkerGroup::Phase::kIdle; }

// Whether the step is agreed, and the workers go there, or save.
bool Supervisor::IsStoppingAtStep() const {
  return stop_committed_ && group_.phase() == WorkerGroup::Phase::kRunning;
}

// Whoever is not at the step soon won't get there; who saves there is spared.
void Supervisor::HastenStop() { stop_reach_end_ = std::min(stop_reach_end_, now_ + kJustBehind); }

void Supervisor::LookAtStop(uint32_t round, uint64_t step) {
  effects_.push_back(LookAtStopStep{group_.generation(), round, step});
}

void Supervisor::OnMessage(const rendezvous::PrepareStop& prepare) {
  if (phase_ == Phase::kEnding || prepare.generation != group_.generation() ||
      group_.phase() != WorkerGroup::Phase::kRunning) {
    return;
  }
  if (group_.all_started()) return LookAtStop(prepare.round, prepare.step);
  SendEvent(prepare.generation,
            rendezvous::StopPrepared{prepare.round, {}});  // nothing to save yet
}

void Supervisor::OnMessage(const rendezvous::CommitStop& commit) {
  if (phase_ == Phase::kEnding) return;
  const bool runs =
      commit.generation == group_.generation() && group_.phase() == WorkerGroup::Phase::kRunning;
  if (!runs) return OnMessage(rendezvous::StopWorkers{commit.generation, commit.reason});
  if (stop_committed_) return;
  stop_committed_ = true;
  preempt_bound_ = Instant::Infinite();
  stop_reach_end_ = now_ + commit.within / rendezvous::kReachingShare;
  stop_save_end_ = now_ + commit.within;
  stop_reason_ = commit.reason;
  RecordFact("stop_committed", {{"generation", absl::StrCat(commit.generation.value())},
                                {"step", absl::StrCat(commit.step)},
                                {"why", commit.reason}});
  Tell(TellUser::Level::kWarning,
       absl::StrCat(commit.reason, "; the workers save and end at step ", commit.step));
  effects_.push_back(CommitStopStep{commit.generation, commit.step});
}

void Supervisor::On(const StopStepLooked& event) {
  if (asked_signal_ != 0 && event.round == 0) {
    const int number = std::exchange(asked_signal_, 0);
    if (!event.look.heeds || !CanAgree()) return LeaveOnSignal(number);
    return BeginPreemption(number);
  }
  if (event.generation != group_.generation() || group_.phase() != WorkerGroup::Phase::kRunning) {
    return;
  }
  if (event.round != 0) {
    SendEvent(event.generation, rendezvous::StopPrepared{event.round, event.look});
  } else if (stop_committed_ && !event.all_stopped) {
    StopGroup(preempt_signal_ != 0 ? preempt_signal_ : SIGTERM,
              absl::StrCat(stop_reason_, "; not all workers of this node are at the stop step"));
  }
}

// What the deadline is divided into is over (R14).
void Supervisor::CheckStopStep() {
  if (now_ >= preempt_at_) return PreemptInTime();
  if (now_ >= preempt_bound_) {
    preempt_bound_ = Instant::Infinite();
    if (leave_signal_ == 0) return LeaveOnSignal(preempt_signal_);
  }
  if (group_.phase() != WorkerGroup::Phase::kRunning) return;
  if (now_ >= stop_save_end_) {
    return StopGroup(SIGTERM, absl::StrCat(stop_reason_, "; the time to save is over"));
  }
  if (now_ >= stop_reach_end_) {
    stop_reach_end_ = Instant::Infinite();
    LookAtStop(/*round=*/0, /*step=*/0);
  }
}

Instant Supervisor::StopStepDeadline() const {
  const Instant bound = std::min(preempt_bound_, preempt_at_);
  if (group_.phase() != WorkerGroup::Phase::kRunning) return bound;
  return std::min({bound, stop_reach_end_, stop_save_end_});
}

// A node that is taken away goes when its workers have ended. That of the service stays until the
// others are done too, and then ends with the job. True: it goes.
bool Supervisor::LeavePreempted() {
  if (preempt_signal_ == 0) return false;
  if (hosts_service_) {
    preempt_bound_ = now_ + config_.preempt_deadline;
    return false;
  }
  leave_signal_ = preempt_signal_;
  phase_ = Phase::kEnding;
  exit_status_ = kExitPreempted;
  ContinueEnding();
  return true;
}

}  // namespace ddprun::launcher
