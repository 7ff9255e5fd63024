#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/core/exit_status.h"
#include "launcher/core/supervisor/supervisor.h"

// How a node leaves its job: taken away at a step of all ranks (R14, R15), or by a signal. And how
// an agent ends: by that, a verdict, a lost service or keeper, or workers that won't die.
namespace ddprun::launcher {
namespace {

// timeout(1) signals its child and then its own process group, so one stop sends two signals.
constexpr absl::Duration kSameSignal = absl::Milliseconds(250);

}  // namespace

// ------------------------------------------------------------- signals

void Supervisor::On(const SignalReceived& event) {
  if (!signals_.Ends(event.number)) {
    // USR1 and the like are for the workers. A signal that comes while none runs is recorded, so
    // that the log explains why it had no effect.
    const bool passed_on = Runs(group_.generation());
    RecordFact("signal", {{"signal", SignalName(event.number)},
                          {"action", passed_on ? "passed_on" : "dropped"}});
    if (!passed_on) return;
    effects_.push_back(SignalGroup{group_.generation(), event.number, /*stops=*/false});
    return;
  }
  const bool repeats = event.number == ending_signal_ && now_ - signalled_ < kSameSignal;
  RecordFact("signal",
             {{"signal", SignalName(event.number)}, {"action", repeats ? "repeated" : "ends"}});
  if (repeats) return;
  ending_signal_ = event.number;
  signalled_ = now_;
  if (ending_.is_leaving()) return OnSecondSignal(event.number);
  switch (departure_.OnSignal(event.number, {.can_agree = CanAgree(),
                                             .all_started = group_.all_started(),
                                             .committed = stop_.committed()})) {
    case Departure::Answer::kLeave:
      return LeaveOnSignal(event.number);
    case Departure::Answer::kAgree:
      departure_.Begin(event.number);
      return Agree();
    case Departure::Answer::kAskWorkers:
      return LookAtStop(/*round=*/0, /*step=*/0);
  }
}

// A second signal kills the workers now.
void Supervisor::OnSecondSignal(int number) {
  if (group_.phase() == WorkerGroup::Phase::kIdle) return Finish();
  Notify(NotifyUser::Level::kWarning,
         absl::StrCat("got ", SignalName(number), " again: killing the workers now"));
  killed_by_signal_ = true;
  Apply(group_.KillNow(now_, real_now_), "killed by a second signal");
}

void Supervisor::LeaveOnSignal(int number) {
  const bool waits_for_verdict = phase_ == Phase::kEnding;
  ending_.Leave(number);
  if (!waits_for_verdict) {
    const bool ever_spawned = group_.generation() != rendezvous::Generation();
    const bool preempts = departure_.Preempts(number, stop_.committed());
    ending_.Begin(preempts ? kExitPreempted : ever_spawned ? kExitFailed : 128 + number);
  }
  BecomeEnding();
  if (group_.phase() != WorkerGroup::Phase::kIdle) {
    Notify(NotifyUser::Level::kWarning,
           absl::StrCat(departure_.WhyLeaving(number, "got "),
                        ": stopping the workers, killing what is left after ",
                        absl::FormatDuration(stream_.job().stop_grace), " (again: at once)"));
  }
  // If the job ends with this, the other nodes needn't wait until our workers have ended.
  if (!waits_for_verdict && LeaveEndsJob()) SendLeave();
  StopGroup(number, departure_.WhyLeaving(number, "the agent got "));
  ContinueEnding();
}

// Whether the job ends when this node leaves: on Ctrl-C, and if this node has the service.
bool Supervisor::LeaveEndsJob() const {
  return signals_.EndsJob(ending_.leave_signal()) || stream_.node().hosts_service;
}

void Supervisor::SendLeave() {
  if (ending_.leave_was_sent() || !stream_.is_welcomed()) return;
  const int number = ending_.leave_signal();
  const bool preempts = departure_.Preempts(number, stop_.committed());
  ending_.LeaveSent();
  Send(group_.generation(),
       rendezvous::Leave{number != 0 ? departure_.WhyLeaving(number) : "its keeper died",
                         LeaveEndsJob(),
                         /*preempted=*/preempts && !departure_.is_drained()});
}

// ------------------------------------------------------------- a node that is taken away

// Whether a stop step can be agreed on: the service is reachable, and workers run here, or this
// node has the service and others still save.
bool Supervisor::CanAgree() const {
  if (phase_ != Phase::kStandby || !stream_.is_welcomed()) return false;
  // The node with the service goes last, because others that still save need it.
  const bool is_idle = group_.phase() == WorkerGroup::Phase::kIdle;
  const bool others_save = stop_.committed() && stream_.node().hosts_service && is_idle;
  return others_save || Runs(group_.generation());
}

// Notifies the other nodes of the preemption. Requires: departure_.is_going() and CanAgree().
void Supervisor::Agree() {
  const int number = departure_.signal();
  if (group_.phase() == WorkerGroup::Phase::kIdle) {
    departure_.AwaitOthers(now_);
  } else if (!stop_.committed()) {
    departure_.AwaitAgreement(now_);
  }
  Notify(
      NotifyUser::Level::kWarning,
      absl::StrCat(departure_.WhyLeaving(number, "got "),
                   ": this node is about to be taken away, so all workers of the job are to stop "
                   "at one step (a signal now: they get it at once)"));
  Send(group_.generation(), rendezvous::Preempt{.reason = departure_.WhyLeaving(number),
                                                .deadline = departure_.deadline(),
                                                .ends_job = stream_.node().hosts_service,
                                                .drained = departure_.is_drained()});
}

// The preemption has begun, but not by a signal.
void Supervisor::AgreeOrLeave() {
  const std::string why = departure_.WhyLeaving(departure_.signal());
  RecordFact(departure_.is_drained() ? "drain" : "preempt_time", {{"why", why}});
  ending_.Explain(why);
  CanAgree() ? Agree() : LeaveOnSignal(departure_.signal());
}

// `ddprun drain` (R15): the same as a preemption of this node, except that the job goes on and
// waits for another node.
void Supervisor::OnMessage(const rendezvous::Drain& drain) {
  if (phase_ == Phase::kEnding || departure_.is_going()) return;
  if (stream_.node().hosts_service) {
    return Notify(
        NotifyUser::Level::kWarning,
        "this node has the rendezvous service, without which the job can't go on: it isn't "
        "drained");
  }
  if (last_.succeeded()) {  // nothing is left here to be saved
    departure_.Drain("");
    return Notify(
        NotifyUser::Level::kWarning,
        "this node is drained; its workers have ended well, so it leaves with the job, or "
        "when that restarts");
  }
  departure_.Drain(drain.reason.empty() ? "drained" : absl::StrCat("drained: ", drain.reason));
  AgreeOrLeave();
}

void Supervisor::On(const StopStepLooked& event) {
  const int asked = event.round == 0 ? departure_.TakeAsked() : 0;
  if (asked != 0) {
    if (!event.look.heeds || !CanAgree()) return LeaveOnSignal(asked);
    departure_.Begin(asked);
    return Agree();
  }
  if (!Runs(event.generation)) return;
  if (event.round != 0) {
    Send(event.generation, rendezvous::StopPrepared{event.round, event.look});
  } else if (stop_.committed() && !event.all_stopped) {
    StopGroup(departure_.is_going() ? departure_.signal() : SIGTERM,
              absl::StrCat(group_.why(), "; not all workers of this node are at the stop step"));
  }
}

// A part of the time until the deadline may be over (R14).
void Supervisor::CheckPreemption() {
  switch (departure_.OnTimer(now_, real_now_)) {
    case Departure::Due::kTime:  // the last moment to stop and save
      if (phase_ == Phase::kEnding || departure_.is_going()) return;
      departure_.BeginFor(departure_.TimeText());
      return AgreeOrLeave();
    case Departure::Due::kBound:
      if (!ending_.is_leaving()) return LeaveOnSignal(departure_.signal());
      break;
    case Departure::Due::kNothing:
      break;
  }
  if (!Runs(group_.generation())) return;
  switch (stop_.OnTimer(now_)) {
    case AgreedStop::Due::kTimeIsOver:
      return StopGroup(SIGTERM, absl::StrCat(group_.why(), "; the time to save is over"));
    case AgreedStop::Due::kLook:
      return LookAtStop(/*round=*/0, /*step=*/0);
    case AgreedStop::Due::kNothing:
      break;
  }
}

// A node that is taken away leaves when its workers have ended. The node with the service stays
// until the others are done, too, and ends with the job. Returns: whether the node leaves.
bool Supervisor::LeavePreempted() {
  if (!departure_.is_going()) return false;
  if (stream_.node().hosts_service) {
    departure_.AwaitOthers(now_);
    return false;
  }
  BecomeEnding();
  ending_.Leave(departure_.signal());
  ending_.Begin(kExitPreempted);
  ContinueEnding();
  return true;
}

// ------------------------------------------------------------- the end

void Supervisor::OnMessage(const rendezvous::Verdict& verdict) {
  RecordFact("verdict", VerdictFields(verdict));
  ending_.OnVerdict(verdict);
  const bool ran_here = group_.generation() != rendezvous::Generation();
  if (verdict.outcome == rendezvous::Outcome::kSucceeded && !ran_here) {
    // The exit status is 0, as if this node had trained.
    Notify(NotifyUser::Level::kWarning,
           standby_.waits() || standby_.is_spare()
               ? "the job succeeded without this node, which was a spare and ran no "
                 "worker (a job of its own needs its own --rdzv_id, or another "
                 "endpoint)"
               : "the job had succeeded when this node came: it has nothing to do");
  }
  if (phase_ == Phase::kEnding) return ContinueEnding();
  End(ending_.StatusOf(verdict), verdict.reason);
}

void Supervisor::EndExitBarrier() {
  ending_.Explain(barrier_.Why());
  Notify(NotifyUser::Level::kWarning, barrier_.Why());
  ending_.LeaveSent();
  Send(group_.generation(), rendezvous::Leave{"done, its exit barrier timeout is over", false});
  End(0, "the agent ends");
}

void Supervisor::CheckService() {
  const ServiceWatch::Decision decision = watch_.OnTimer(now_);
  if (decision.lost) RecordFact("service_lost", {{"why", *decision.lost}});
  if (decision.give_up) {
    return LoseService(
        absl::StrCat(*decision.give_up, watch_.is_name_unknown() ? hints_.WhyUnknown() : ""));
  }
  if (!decision.tell) return;
  const std::string hint = !watch_.is_joining()       ? ""
                           : watch_.is_name_unknown() ? hints_.WhyUnknown()
                                                      : hints_.WhyNobodyAnswers();
  Notify(NotifyUser::Level::kWarning, absl::StrCat(*decision.tell, hint));
}

void Supervisor::LoseService(const std::string& why) {
  ReportEnd(absl::StrCat(phase_ == Phase::kJoining ? "can't join the job at " : "lost the job at ",
                         endpoint_, ": ", why));
  ending_.GiveUpService();
  End(kExitFailed, "the agent ends");
}

void Supervisor::On(const KeeperLost& event) {
  ReportEnd(absl::StrCat("the keeper of the workers died (", event.why,
                         "); the workers died with it. This agent ends"));
  group_.KillNow(now_, real_now_);
  if (group_.phase() == WorkerGroup::Phase::kSweeping) group_.OnEmpty();
  group_.ForgetKept();
  if (phase_ == Phase::kEnding) return ContinueEnding();
  // The node has no workers any more, so for the job this is an orderly leave.
  ending_.LeaveWithoutKeeper();
  SendLeave();
  End(kExitFailed, "the agent ends");
}

void Supervisor::EndUnclean() {
  ReportEnd(
      absl::StrCat("processes of generation ", group_.generation().value(),
                   " are still there 5 s after SIGKILL (in uninterruptible sleep: look for state D "
                   "in ps); this node leaves the job"));
  if (phase_ != Phase::kEnding) SendStopped(/*clean=*/false);
  BecomeEnding();
  ending_.Begin(kExitFailed);
  ContinueEnding();
}

// An agent that ends, for any reason, doesn't wait for the workers of other nodes.
void Supervisor::BecomeEnding() {
  phase_ = Phase::kEnding;
  barrier_.Cancel();
}

void Supervisor::End(int status, const std::string& why) {
  BecomeEnding();
  ending_.Begin(status);
  StopGroup(SIGTERM, why);
  ContinueEnding();
}

void Supervisor::ContinueEnding() {
  SweepKept();
  const bool is_idle = group_.phase() == WorkerGroup::Phase::kIdle;
  switch (ending_.Next(now_, {.workers_gone = is_idle || group_.unclean(),
                              .stream_open = stream_.is_open(),
                              .stream_welcomed = stream_.is_welcomed()})) {
    case Ending::Step::kWait:
      return;
    case Ending::Step::kSendLeave:
      SendLeave();
      return ContinueEnding();
    case Ending::Step::kFinishStream:
      effects_.push_back(FinishStream{});
      return;
    case Ending::Step::kExit:
      return Finish();
  }
}

void Supervisor::Finish() {
  phase_ = Phase::kEnded;
  if (departure_.is_drained() && !ending_.has_verdict()) {
    Notify(
        NotifyUser::Level::kWarning,
        absl::StrCat("this node has left the job, which goes on without it or waits for another: ",
                     ending_.why(), "; exit status ", ending_.status(),
                     ". ddprun drain --undo lets this machine in again"));
  }
  Exit exit = ending_.ToExit();
  for (const WorkerEnd& end : group_.stopped()) {
    exit.stopped.push_back(group_.Describe(end, stream_.node_id(), stream_.node().hostname));
  }
  effects_.push_back(std::move(exit));
}

// Reports an error that ends this agent.
void Supervisor::ReportEnd(const std::string& text) {
  ending_.Explain(text);
  Notify(NotifyUser::Level::kError, text);
}

}  // namespace ddprun::launcher
