#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/signal_name.h"
#include "launcher/core/supervisor.h"

// How an agent ends: by a verdict, a signal, a lost service or keeper, or workers that won't die.
namespace ddprun::launcher {
namespace {

// How long the end of the stream, and then of the service child, is waited for. The service itself
// gives the other agents 2 s to take the verdict.
constexpr absl::Duration kFinishBound = absl::Seconds(2);
constexpr absl::Duration kServiceExitBound = absl::Seconds(5);

// In leave_signal_: no signal, but the loss of the keeper makes the agent leave.
constexpr int kKeeperDied = -1;

}  // namespace

void Supervisor::On(const SignalReceived& event) {
  if (!config_.signals.Ends(event.number)) {
    // USR1 and the like are the workers' business.
    if (group_.phase() == WorkerGroup::Phase::kRunning) {
      effects_.push_back(SignalGroup{group_.generation(), event.number});
    }
    return;
  }
  RecordFact("signal", {{"signal", SignalName(event.number)}});
  if (leave_signal_ == 0) return LeaveOnSignal(event.number);
  // The second one: at once.
  if (group_.phase() == WorkerGroup::Phase::kIdle) {
    return Finish();
  }
  Tell(TellUser::Level::kWarning,
       absl::StrCat("got ", SignalName(event.number), " again: killing the workers now"));
  Apply(group_.KillNow(now_), "killed by a second signal");
}

void Supervisor::LeaveOnSignal(int number) {
  leave_signal_ = number;
  const bool waiting_for_verdict = phase_ == Phase::kEnding;
  if (!waiting_for_verdict) exit_status_ = ever_spawned_ ? 1 : 128 + number;
  phase_ = Phase::kEnding;
  if (group_.phase() != WorkerGroup::Phase::kIdle) {
    Tell(TellUser::Level::kWarning,
         absl::StrCat("got ", SignalName(number),
                      ": stopping the workers, killing what is left after ",
                      absl::FormatDuration(config_.job.stop_grace), " (again: at once)"));
  }
  // The others should not wait for our workers to end when the job ends anyhow.
  if (!waiting_for_verdict && LeaveEndsJob()) SendLeave();
  StopGroup(number, absl::StrCat("the agent got ", SignalName(number)));
  ContinueEnding();
}

// Without its service a job can't go on.
bool Supervisor::LeaveEndsJob() const {
  return config_.signals.EndsJob(leave_signal_) || hosts_service_;
}

int Supervisor::StatusOf(const rendezvous::Verdict& verdict) const {
  if (verdict.outcome == rendezvous::Outcome::kSucceeded) return 0;
  const bool has_cause = verdict.first_causes > 0 && !verdict.failures.empty();
  if (!config_.exit_with_first_cause || !has_cause) return 1;
  const rendezvous::WorkerFailure& cause = verdict.failures.front();
  if (cause.signal != 0) return 128 + cause.signal;  // as a shell says it
  return cause.exit_code != 0 ? cause.exit_code : 1;
}

void Supervisor::SendLeave() {
  if (leave_sent_ || !welcomed_) return;
  leave_sent_ = true;
  SendEvent(group_.generation(),
            rendezvous::Leave{leave_signal_ > 0 ? SignalName(leave_signal_) : "its keeper died",
                              LeaveEndsJob()});
}

void Supervisor::OnMessage(const rendezvous::Verdict& verdict) {
  RecordFact("verdict",
             {{"outcome", verdict.outcome == rendezvous::Outcome::kSucceeded ? "succeeded"
                          : verdict.outcome == rendezvous::Outcome::kFailed  ? "failed"
                                                                             : "stopped"},
              {"reason", verdict.reason}});
  if (phase_ == Phase::kEnding) {
    if (!verdict_.has_value()) verdict_ = verdict;
    return ContinueEnding();
  }
  End(StatusOf(verdict), verdict);
}

void Supervisor::End(int status, std::optional<rendezvous::Verdict> verdict) {
  phase_ = Phase::kEnding;
  exit_status_ = status;
  verdict_ = std::move(verdict);
  StopGroup(SIGTERM, verdict_.has_value() ? verdict_->reason : "the agent ends");
  ContinueEnding();
}

// An error that ends this agent.
void Supervisor::TellEnd(std::string text) {
  end_reason_ = text;
  Tell(TellUser::Level::kError, std::move(text));
}

void Supervisor::LoseService(const std::string& why) {
  TellEnd(absl::StrCat(phase_ == Phase::kJoining ? "can't join the job at " : "lost the job at ",
                       config_.endpoint, ": ", why));
  service_given_up_ = true;
  End(1, std::nullopt);
}

void Supervisor::On(const KeeperLost& event) {
  TellEnd(absl::StrCat("the keeper of the workers died (", event.why,
                       "); the workers died with it. This agent ends"));
  group_.KillNow(now_);
  if (group_.phase() == WorkerGroup::Phase::kSweeping) group_.OnEmpty();
  if (phase_ != Phase::kEnding) {
    // To the job this is an orderly loss of the node: it has no workers any more.
    leave_signal_ = kKeeperDied;
    SendLeave();
    End(1, std::nullopt);
  } else {
    ContinueEnding();
  }
}

void Supervisor::EndUnclean() {
  TellEnd(
      absl::StrCat("processes of generation ", group_.generation().value(),
                   " are still there 5 s after SIGKILL (in uninterruptible sleep: look for state D "
                   "in ps); this node leaves the job"));
  if (phase_ != Phase::kEnding) SendStopped(/*clean=*/false);
  phase_ = Phase::kEnding;
  exit_status_ = 1;
  ContinueEnding();
}

// Ends in order: the group is empty, the service knows, the stream is closed, the service child (if
// it is ours) has let the others go.
void Supervisor::ContinueEnding() {
  if (group_.phase() != WorkerGroup::Phase::kIdle && !group_.unclean()) return;
  const bool owes_leave = leave_signal_ != 0 && !verdict_.has_value() && !leave_sent_;
  if (owes_leave && stream_up_ && !welcomed_) {  // nothing but the Join goes before the Welcome
    finish_bound_ = std::min(finish_bound_, now_ + kFinishBound);
    return;
  }
  if (owes_leave) SendLeave();
  if (stream_up_ && !service_given_up_) {
    if (finish_sent_) return;
    finish_sent_ = true;
    finish_bound_ = now_ + kFinishBound;
    effects_.push_back(FinishStream{});
    return;
  }
  const bool others_are_told = verdict_.has_value() || leave_sent_;
  if (service_running_ && others_are_told) {  // the coordinator leaves last (R8)
    if (waiting_for_service_) return;
    waiting_for_service_ = true;
    finish_bound_ = now_ + kServiceExitBound;
    return;
  }
  Finish();
}

void Supervisor::Finish() {
  phase_ = Phase::kEnded;
  Exit exit{.status = exit_status_, .verdict = verdict_, .signal = std::max(leave_signal_, 0)};
  if (!verdict_.has_value()) exit.why = end_reason_;
  for (const WorkerEnd& end : group_.stopped()) exit.stopped.push_back(Describe(end));
  effects_.push_back(std::move(exit));
}

}  // namespace ddprun::launcher
