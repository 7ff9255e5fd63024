#include "launcher/core/supervisor/supervisor_text.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"

namespace ddprun::launcher {
namespace {

// "restart 2 of 3 (worker rank 0 on host1 exited with code 1; rule worker_failure)".
std::string RestartText(const rendezvous::Assignment& assignment, uint32_t max_restarts) {
  const std::string text =
      rendezvous::RestartText(assignment.restart_count, assignment.restarts_charged, max_restarts);
  if (assignment.reason.empty() && assignment.rule.empty()) return text;
  const std::string rule = assignment.rule.empty() ? "" : absl::StrCat("rule ", assignment.rule);
  const absl::string_view between = assignment.reason.empty() || rule.empty() ? "" : "; ";
  return absl::StrCat(text, " (", assignment.reason, between, rule, ")");
}

}  // namespace

RecordFields VerdictFields(const rendezvous::Verdict& verdict) {
  return {{"outcome", rendezvous::OutcomeName(verdict.outcome)},
          {"reason", verdict.reason},
          {"rule", verdict.rule}};
}

RecordFields AssignmentFields(const rendezvous::Assignment& assignment) {
  return {{"generation", absl::StrCat(assignment.generation.value())},
          {"world", absl::StrCat(assignment.world_size)},
          {"rank", absl::StrCat(assignment.base_rank)},
          {"group_rank", absl::StrCat(assignment.group_rank)},
          {"restart_count", absl::StrCat(assignment.restart_count)},
          {"rule", assignment.rule},
          {"master", absl::StrCat(assignment.master_addr, ":", assignment.master_port)}};
}

std::string AssignmentText(const rendezvous::Assignment& assignment, uint32_t worker_count,
                           uint32_t max_restarts) {
  const uint32_t last = assignment.base_rank + worker_count - 1;
  return absl::StrCat("generation ", assignment.generation.value(), ": ",
                      CountText(assignment.world_size, "worker"), " on ",
                      CountText(assignment.group_world_size, "node"), ", ",
                      worker_count == 1 ? absl::StrCat("rank ", last)
                                        : absl::StrCat("ranks ", assignment.base_rank, "-", last),
                      " here, ", RestartText(assignment, max_restarts));
}

std::string WorkerEndText(const WorkerEnd& end, uint32_t base_rank) {
  return absl::StrCat("worker rank ", base_rank + end.local_rank, " (local rank ", end.local_rank,
                      ", pid ", end.pid, ") ", DescribeEnd(end));
}

std::string SuspendedText(const WorkerSuspended& event, uint32_t base_rank, bool restarts) {
  const std::string text = absl::StrCat("worker rank ", base_rank + event.local_rank, " (pid ",
                                        event.pid, ") was stopped by ", SignalName(event.signal));
  if (restarts) return absl::StrCat(text, "; it is killed (--on_stopped restart)");
  return absl::StrCat(text, "; the job stands still until it goes on (kill -CONT ", event.pid, ")");
}

std::string LateAgentsText(absl::Duration left) {
  return absl::StrCat("the job has ended, but not all nodes of its step have come. Waiting ",
                      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                      " at most, to let them know that it is over; a signal ends this wait");
}

namespace {

constexpr absl::Duration kNotifyAfter = absl::Seconds(1);

}  // namespace

bool StandbyNotice::OnStandby(Instant now, const std::string& reason, bool spare) {
  spare_ = spare;
  if (reason == reason_) return false;
  reason_ = reason;
  tell_at_ = reason.empty() ? Instant::Infinite() : now + kNotifyAfter;
  return true;
}

std::optional<std::string> StandbyNotice::OnTimer(Instant now) {
  if (now < tell_at_) return std::nullopt;
  tell_at_ = Instant::Infinite();
  return reason_;
}

}  // namespace ddprun::launcher
