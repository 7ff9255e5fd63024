#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/signal_name.h"
#include "launcher/core/exit_status.h"
#include "launcher/core/supervisor.h"

// How an agent ends: by a verdict, a signal, a lost service or keeper, or workers that won't die.
namespace ddprun::launcher {
namespace {

// How long the end of the stream, and then of the service child, is waited for. The service itself
// gives the other agents 2 s to take the verdict.
constexpr absl::Duration kFinishBound = absl::Seconds(2);
constexpr absl::Duration kServiceExitBound = absl::Seconds(5);

// A node that is alone at a loopback address is told so, once.
constexpr absl::Duration kTellLoopbackAfter = absl::Seconds(2);

std::string OutcomeName(rendezvous::Outcome outcome) {
  switch (outcome) {
    case rendezvous::Outcome::kSucceeded:
      return "succeeded";
    case rendezvous::Outcome::kFailed:
      return "failed";
    case rendezvous::Outcome::kFailedForGood:
      return "failed_for_good";
    case rendezvous::Outcome::kStopped:
      return "stopped";
    case rendezvous::Outcome::kPreempted:
      return "preempted";
  }
  return "unknown";
}

// In leave_signal_: no signal, but the loss of the keeper makes the agent leave.
constexpr int kKeeperDied = -1;

}  // namespace

void Supervisor::On(const SignalReceived& event) {
  if (!config_.signals.Ends(event.number)) {
    // USR1 and the like are the workers' business.
    if (group_.phase() == WorkerGroup::Phase::kRunning) {
      effects_.push_back(SignalGroup{group_.generation(), event.number, /*stops=*/false});
    }
    return;
  }
  RecordFact("signal", {{"signal", SignalName(event.number)}});
  if (leave_signal_ == 0) return OnEndingSignal(event.number);
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
  if (!waiting_for_verdict) {
    exit_status_ = Preempts(number) ? kExitPreempted : ever_spawned_ ? kExitFailed : 128 + number;
  }
  phase_ = Phase::kEnding;
  if (group_.phase() != WorkerGroup::Phase::kIdle) {
    Tell(TellUser::Level::kWarning,
         absl::StrCat(WhyLeaving(number, "got "),
                      ": stopping the workers, killing what is left after ",
                      absl::FormatDuration(config_.job.stop_grace), " (again: at once)"));
  }
  // The others should not wait for our workers to end when the job ends anyhow.
  if (!waiting_for_verdict && LeaveEndsJob()) SendLeave();
  StopGroup(number, WhyLeaving(number, "the agent got "));
  ContinueEnding();
}

// Without its service a job can't go on.
bool Supervisor::LeaveEndsJob() const {
  return config_.signals.EndsJob(leave_signal_) || hosts_service_;
}

int Supervisor::StatusOf(const rendezvous::Verdict& verdict) const {
  switch (verdict.outcome) {
    case rendezvous::Outcome::kSucceeded:
      return 0;
    case rendezvous::Outcome::kFailedForGood:
      return kExitFailedForGood;
    case rendezvous::Outcome::kPreempted:
      return kExitPreempted;
    case rendezvous::Outcome::kFailed:
    case rendezvous::Outcome::kStopped:
      break;
  }
  const bool has_cause = verdict.first_causes > 0 && !verdict.failures.empty();
  if (!config_.exit_with_first_cause || !has_cause) return kExitFailed;
  const rendezvous::WorkerFailure& cause = verdict.failures.front();
  if (cause.signal != 0) return 128 + cause.signal;  // as a shell says it
  return cause.exit_code != 0 ? cause.exit_code : kExitFailed;
}

void Supervisor::SendLeave() {
  if (leave_sent_ || !welcomed_) return;
  leave_sent_ = true;
  SendEvent(group_.generation(),
            rendezvous::Leave{leave_signal_ > 0 ? WhyLeaving(leave_signal_) : "its keeper died",
                              LeaveEndsJob(),
                              /*preempted=*/Preempts(leave_signal_) && !drained_});
}

// A node that is done waits for the others for as long as they need it or the user wants.
void Supervisor::BeginExitBarrier() {
  const bool is_needed = hosts_service_ || group_rank_ == 0;
  if (!is_needed) barrier_end_ = now_ + config_.exit_barrier_timeout;
}

void Supervisor::EndExitBarrier() {
  barrier_end_ = Instant::Infinite();
  end_reason_ = absl::StrCat(
      "all workers of this node ended well; it does not wait for the other "
      "nodes any longer (--exit_barrier_timeout ",
      absl::FormatDuration(config_.exit_barrier_timeout), ")");
  Tell(TellUser::Level::kWarning, end_reason_);
  leave_sent_ = true;
  SendEvent(group_.generation(),
            rendezvous::Leave{"done, its exit barrier timeout is over", false});
  End(0, std::nullopt);
}

void Supervisor::OnMessage(const rendezvous::Verdict& verdict) {
  RecordFact("verdict", {{"outcome", OutcomeName(verdict.outcome)},
                         {"reason", verdict.reason},
                         {"rule", verdict.rule}});
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
  End(kExitFailed, std::nullopt);
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
    End(kExitFailed, std::nullopt);
  } else {
    ContinueEnding();
  }
}

void Supervisor::EndUnclean() {
  ended_unclean_ = true;
  TellEnd(
      absl::StrCat("processes of generation ", group_.generation().value(),
                   " are still there 5 s after SIGKILL (in uninterruptible sleep: look for state D "
                   "in ps); this node leaves the job"));
  if (phase_ != Phase::kEnding) SendStopped(/*clean=*/false);
  phase_ = Phase::kEnding;
  exit_status_ = kExitFailed;
  ContinueEnding();
}

void Supervisor::WatchLoneliness(const rendezvous::Standby& standby) {
  const bool alone = endpoint_is_loopback_ && standby.nodes_present <= 1 && !standby.spare;
  if (!alone || told_loopback_) {
    tell_loopback_ = Instant::Infinite();
  } else if (tell_loopback_.is_infinite()) {
    tell_loopback_ = now_ + kTellLoopbackAfter;
  }
}

std::string Supervisor::LoopbackHint() const {
  return absl::StrCat(" ", config_.endpoint,
                      " is this machine's loopback, which no other machine "
                      "can reach: give every node an address of the host (--master_addr or "
                      "--rdzv_endpoint)");
}

// What may be wrong with an endpoint where nobody answers.
std::string Supervisor::JoiningHint() const {
  if (endpoint_is_loopback_) return absl::StrCat(" Note that", LoopbackHint());
  const bool is_elsewhere = !config_.node.address.empty() && !hosts_service_;  // known by now
  if (!config_.hosts_by_address || !is_elsewhere) return "";
  return " No address of this node is that one's; if it is translated on the way to this node, "
         "give "
         "--rdzv_conf is_host=1 here";
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
  if (drained_ && !verdict_.has_value()) {
    Tell(TellUser::Level::kWarning,
         absl::StrCat("this node has left the job, which goes on without it or waits for another: ",
                      end_reason_, "; exit status ", exit_status_,
                      ". ddprun drain --undo lets this machine in again"));
  }
  for (const WorkerEnd& end : group_.stopped()) exit.stopped.push_back(Describe(end));
  effects_.push_back(std::move(exit));
}

}  // namespace ddprun::launcher
