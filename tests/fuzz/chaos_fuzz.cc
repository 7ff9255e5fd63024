#include "tests/fuzz/chaos_fuzz.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "launcher/chaos/chaos_plan_file.h"
#include "launcher/chaos/core/chaos_cost.h"
#include "launcher/chaos/core/chaos_schedule.h"
#include "launcher/chaos/core/chaos_text.h"
#include "launcher/chaos/report_json.h"
#include "launcher/chaos/timeline_reader.h"

namespace ddprun::launcher {
namespace {

void CheckChaosPlan(const ChaosPlan& plan) {
  DDPRUN_CHECK(plan.faults.size() <= kFaultsMax, "too many faults");
  for (const FaultPlan& fault : plan.faults) {
    DDPRUN_CHECK(!DescribeFault(fault).empty(), "a fault without words");
    DDPRUN_CHECK(fault.lasts > absl::ZeroDuration(), "a fault that is over before");
    DDPRUN_CHECK(!HitsNetwork(fault.kind) || fault.lasts <= kNetworkFaultMax, "a cut for good");
    const bool again = fault.trigger.every > absl::ZeroDuration() || fault.trigger.every_steps > 0;
    const bool each = fault.trigger.kind == Trigger::Kind::kMoment || fault.trigger.each_generation;
    DDPRUN_CHECK(fault.trigger.times == 1 || again || each, "again, but when");
  }
  ChaosSchedule schedule(plan);
  ChaosView view{
      .job_began = Instant(), .generation = 1, .begun = 1, .world = 2, .agent_runs = true};
  view.workers.assign(2, {.runs = true, .phase = ProgressPhase::kTrain, .step = 100});
  for (int second = 0; second < 4; ++second) {
    const Instant now = Instant() + absl::Seconds(second * 60);
    DDPRUN_CHECK(schedule.Due(now, view).size() <= plan.faults.size(), "more than there are");
    DDPRUN_CHECK(schedule.NextTime(now, view) > now, "a time that has passed");
  }
}

void CheckChaosLines(absl::string_view bytes, const ChaosPlan& plan) {
  std::vector<TimelineLine> lines;
  for (absl::string_view text : absl::StrSplit(bytes, '\n')) {
    auto line = ParseTimelineLine(text, LineClock::kMonotonic);
    if (line.has_value()) lines.push_back(*std::move(line));
  }
  const ChaosReport report = WorkOutCosts(lines, plan.expect, {});
  DDPRUN_CHECK(!ChaosText(report, plan, "plan", {}).empty(), "no report");
  DDPRUN_CHECK(!ChaosJson(report, plan, {}).empty(), "no report as JSON");
}

}  // namespace

ChaosOutcome ParseChaosBytes(absl::string_view bytes) {
  const absl::StatusOr<ChaosPlan> plan = ReadChaosPlan("plan", std::string(bytes));
  if (!plan.ok()) {
    DDPRUN_CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument, "no usage error");
    DDPRUN_CHECK(absl::StartsWith(plan.status().message(), "plan:"), "an error without a place");
    CheckChaosLines(bytes, {});
    return ChaosOutcome::kRefused;
  }
  CheckChaosPlan(*plan);
  return ChaosOutcome::kPlan;
}

}  // namespace ddprun::launcher
