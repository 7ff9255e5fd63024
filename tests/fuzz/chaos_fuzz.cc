#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/inputs.h"
#include "tests/support/trees.h"
#include "tools/chaos/chaos_command.h"
#include "tools/chaos/chaos_plan_file.h"
#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_schedule.h"
#include "tools/chaos/core/chaos_text.h"
#include "tools/chaos/timeline_reader.h"

namespace ddprun::launcher {

enum class ChaosOutcome { kPlan, kRefused };

// Takes the bytes as the plan of `ddprun chaos`, and as an event log that costs are worked out of:
// what is refused says where, what is accepted is within bounds, can be described and scheduled,
// and no lines make the report fail. Aborts if not.
ChaosOutcome ParseChaosBytes(absl::string_view bytes);

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

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240610;
const int kRounds = Inputs(4'000);

const char* const kKeys[] = {"fault", "worker", "node",   "signal", "at",      "since",
                             "step",  "moment", "every",  "times",  "for",     "rejoin",
                             "loss",  "seed",   "faults", "expect", "noticed", "direction"};
const char* const kValues[] = {"worker_killed",
                               "worker_stopped",
                               "agent_killed",
                               "agent_frozen",
                               "service_killed",
                               "service_stalled",
                               "network_cut",
                               "packet_loss",
                               "random",
                               "1",
                               "0",
                               "-1",
                               "30s",
                               "5%",
                               "job",
                               "generation",
                               "saving",
                               "running",
                               "KILL",
                               "in",
                               "1e9h",
                               "[]",
                               "{",
                               "\xff",
                               "~"};

std::string ReadCorpus(const std::string& name) {
  std::ifstream file(InSourceTree("tests/fuzz/corpus/chaos/" + name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChaosSmoke, RandomFaults) {
  Rng rng(kSeed);
  std::array<int, 2> outcomes{};
  for (int round = 0; round < kRounds; ++round) {
    std::string text = "faults: [{fault: ";
    text += kValues[rng.Below(8)];
    for (uint64_t i = 1 + rng.Below(3); i > 0; --i) {
      text += std::string(", ") + kKeys[rng.Below(std::size(kKeys))] + ": " +
              kValues[rng.Below(std::size(kValues))];
    }
    ++outcomes[static_cast<size_t>(ParseChaosBytes(text + "}]"))];
  }
  EXPECT_GT(outcomes[0], 0);
  EXPECT_GT(outcomes[1], kRounds / 2);
}

TEST(ChaosSmoke, DamagedFiles) {
  Rng rng(kSeed);
  std::array<int, 2> outcomes{};
  for (const char* name : {"plan.yaml", "events.jsonl"}) {
    const std::string good = ReadCorpus(name);
    ASSERT_FALSE(good.empty()) << name;
    for (int round = 0; round < kRounds; ++round) {
      std::string text = good;
      for (uint64_t i = rng.Below(4); i > 0; --i) {
        text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
      }
      ++outcomes[static_cast<size_t>(ParseChaosBytes(text))];
    }
  }
  EXPECT_GT(outcomes[0], kRounds / 10);
  EXPECT_GT(outcomes[1], kRounds / 10);
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ParseChaosBytes(bytes); }
