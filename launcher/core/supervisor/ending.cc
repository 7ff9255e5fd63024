#include "launcher/core/supervisor/ending.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "launcher/core/exit_status.h"

namespace ddprun::launcher {

void ExitBarrier::OnAssigned(uint32_t group_rank) {
  group_rank_ = group_rank;
  Cancel();
}

void ExitBarrier::Begin(Instant now, bool hosts_service) {
  DDPRUN_CHECK(end_.is_infinite(), "a generation ends well once");
  if (hosts_service || group_rank_ == 0) return;
  end_ = now + settings_.timeout;
}

bool ExitBarrier::OnTimer(Instant now) {
  if (now < end_) return false;
  Cancel();
  return true;
}

std::string ExitBarrier::Why() const {
  return absl::StrCat(
      "all workers of this node ended well; it does not wait for the other nodes any longer "
      "(--exit_barrier_timeout ",
      absl::FormatDuration(settings_.timeout), ")");
}

void LastGeneration::OnEmpty(const GroupEmpty& event) {
  step_ = event.step;
  time_ = event.time;
}

void LastGeneration::Succeed(rendezvous::Generation generation) {
  DDPRUN_CHECK(generation > stores_ended_, "workers that end well leave their stores to others");
  succeeded_ = generation;
}

bool LastGeneration::Withdraw(rendezvous::Generation generation) {
  if (!succeeded() || succeeded_ != generation) return false;
  succeeded_ = rendezvous::Generation();
  return true;
}

bool LastGeneration::EndStores(rendezvous::Generation generation) {
  if (stores_ended_ == generation) return false;
  DDPRUN_CHECK(generation > stores_ended_, "generations end one after the other");
  stores_ended_ = generation;
  return true;
}

namespace {

// How long the agent waits for the end of the stream, and then of the service child. The service
// gives the other agents 2 s to read the verdict.
constexpr absl::Duration kFinishBound = absl::Seconds(2);
constexpr absl::Duration kServiceExitBound = absl::Seconds(5);

}  // namespace

void Ending::OnVerdict(const rendezvous::Verdict& verdict) {
  if (!verdict_.has_value()) verdict_ = verdict;
}

void Ending::Leave(int signal_number) {
  DDPRUN_CHECK(signal_number > 0, "a signal has a number");
  leaving_ = true;
  leave_signal_ = signal_number;
}

void Ending::LeaveWithoutKeeper() {
  DDPRUN_CHECK(!leaving_, "a node leaves for one reason");
  leaving_ = true;
}

bool Ending::OnUnclean() {
  if (finish_sent_) return false;
  return !std::exchange(unclean_, true);
}

Ending::Step Ending::Next(Instant now, const Progress& progress) {
  if (!progress.workers_gone) return Step::kWait;
  const bool owes_leave = leaving_ && !has_verdict() && !leave_sent_;
  if (owes_leave && progress.stream_welcomed) return Step::kSendLeave;
  if (owes_leave && progress.stream_open) {  // nothing but the Join goes before the Welcome
    bound_ = std::min(bound_, now + kFinishBound);
    return Step::kWait;
  }
  if (progress.stream_open && !service_given_up_) {
    if (std::exchange(finish_sent_, true)) return Step::kWait;
    bound_ = now + kFinishBound;
    return Step::kFinishStream;
  }
  const bool others_are_told = has_verdict() || leave_sent_;
  if (!service_running_ || !others_are_told || (awaits_late_ && leaving_)) return Step::kExit;
  if (!std::exchange(awaits_service_, true)) bound_ = now + kServiceExitBound;
  return Step::kWait;  // the coordinator leaves last (R8)
}

bool Ending::OnTimer(Instant now) {
  if (now < bound_) return false;
  if (awaits_service_ && !awaits_late_ && !leaving_ && now < service_until_) {
    awaits_late_ = true;
    bound_ = service_until_ + kServiceExitBound;
    return false;
  }
  bound_ = Instant::Infinite();
  return true;
}

std::optional<absl::Duration> Ending::TakeLateWait(Instant now) {
  if (!awaits_late_ || std::exchange(told_late_, true)) return std::nullopt;
  return service_until_ - now;
}

Exit Ending::ToExit() const {
  return {.status = status_,
          .verdict = verdict_,
          .signal = leave_signal_,
          .why = has_verdict() ? "" : why_};
}

int Ending::StatusOf(const rendezvous::Verdict& verdict) const {
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
  if (!settings_.with_first_cause || !has_cause) return kExitFailed;
  const rendezvous::WorkerFailure& cause = verdict.failures.front();
  if (cause.signal != 0) return 128 + cause.signal;  // as a shell says it
  return cause.exit_code != 0 ? cause.exit_code : kExitFailed;
}

std::string Ending::BrokenInvariant() const {
  if (leave_signal_ != 0 && !leaving_) return "a node that stays leaves on a signal";
  if (awaits_late_ && !awaits_service_) return "agents are late for no service";
  if (told_late_ && !awaits_late_) return "a user was told of agents that aren't late";
  if (awaits_service_ && !has_verdict() && !leave_sent_) return "the service is awaited for nobody";
  return "";
}

}  // namespace ddprun::launcher
