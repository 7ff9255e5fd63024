#include "tools/chaos/core/chaos_text.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kReasonShown = 300;

std::string VictimText(const FaultPlan& fault) {
  const Victim& victim = fault.victim;
  if (HitsService(fault.kind)) return "the node of the service";
  if (victim.random) return HitsWorker(fault.kind) ? "a random worker" : "a random worker's node";
  if (victim.rank.has_value()) return absl::StrCat("worker ", *victim.rank);
  if (victim.group_rank.has_value()) return absl::StrCat("node ", *victim.group_rank);
  return absl::StrCat("node ", victim.host);
}

std::string TriggerText(const Trigger& trigger) {
  constexpr const char* kMoments[] = {"starting", "running", "saving"};
  std::string text;
  switch (trigger.kind) {
    case Trigger::Kind::kAt:
      text = absl::StrCat("at ", absl::FormatDuration(trigger.at),
                          trigger.each_generation ? " of a generation" : "");
      break;
    case Trigger::Kind::kStep:
      text = absl::StrCat("at step ", trigger.step);
      break;
    case Trigger::Kind::kMoment:
      text = absl::StrCat("while ", kMoments[static_cast<size_t>(trigger.moment)]);
      break;
  }
  if (trigger.every > absl::ZeroDuration()) {
    absl::StrAppend(&text, ", every ", absl::FormatDuration(trigger.every));
  }
  if (trigger.every_steps > 0) absl::StrAppend(&text, ", every ", trigger.every_steps, " steps");
  if (trigger.times > 1) absl::StrAppend(&text, ", ", trigger.times, " times");
  return text;
}

std::string CostTimeText(const std::optional<absl::Duration>& time) {
  if (!time.has_value()) return "-";
  const double seconds = absl::ToDoubleSeconds(*time);
  return seconds < 10 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                      : absl::StrFormat("%.1f s", seconds);
}

std::string NumberText(const std::optional<uint64_t>& number, const char* without = "-") {
  return number.has_value() ? absl::StrCat(*number) : without;
}

using Row = std::array<std::string, 10>;

Row RowOf(const FaultCost& cost, Instant began) {
  return {absl::StrCat(cost.fault, cost.occurrence > 1 ? absl::StrCat(".", cost.occurrence) : ""),
          absl::StrFormat("%.1f s", absl::ToDoubleSeconds(cost.at - began)),
          absl::StrCat(cost.kind, " ", cost.victim),
          CostTimeText(cost.noticed),
          CostTimeText(cost.released),
          CostTimeText(cost.resumed),
          CostTimeText(cost.training),
          cost.outcome == "ridden out" ? "0" : NumberText(cost.steps_lost, "not marked"),
          NumberText(cost.restarts),
          cost.rule.empty() ? cost.outcome : absl::StrCat(cost.outcome, ": ", cost.rule)};
}

std::string Table(const ChaosReport& report) {
  std::vector<Row> rows = {{"#", "when", "fault", "noticed", "released", "resumed", "training",
                            "steps lost", "restarts", "then"}};
  for (const FaultCost& cost : report.faults) rows.push_back(RowOf(cost, report.began));
  std::array<size_t, 10> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = i == 0 || i == 2 || i == 9;
      const std::string pad(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, " ", left ? "" : pad, row[i], left && i != 9 ? pad : "", " ");
    }
    while (line.back() == ' ') line.pop_back();
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

void AppendVerdict(const ChaosReport& report, std::string* text) {
  if (!report.judged) return;
  if (report.kept()) {
    absl::StrAppend(text, "  all expectations were kept\n");
    return;
  }
  for (const FaultCost& cost : report.faults) {
    for (const std::string& missed : cost.missed) {
      absl::StrAppend(text, "  MISSED by fault ", cost.fault,
                      cost.occurrence > 1 ? absl::StrCat(".", cost.occurrence) : "", ": ", missed,
                      "\n");
    }
  }
  for (const std::string& missed : report.missed) {
    absl::StrAppend(text, "  MISSED: ", missed, "\n");
  }
}

}  // namespace

std::string DescribeFault(const FaultPlan& fault) {
  std::string text = FaultName(fault.kind);
  if (fault.kind == FaultKind::kWorkerKilled) {
    absl::StrAppend(&text, " by ", SignalName(fault.signal));
  }
  if (fault.kind == FaultKind::kNetworkCut && fault.direction != Direction::kBoth) {
    absl::StrAppend(&text, fault.direction == Direction::kIn ? " inwards" : " outwards");
  }
  if (fault.kind == FaultKind::kPacketLoss) {
    absl::StrAppend(&text, " of ", fault.loss_percent, "%");
  }
  if (fault.lasts != absl::InfiniteDuration()) {
    absl::StrAppend(&text, " for ", absl::FormatDuration(fault.lasts));
  }
  return absl::StrCat(text, ", ", VictimText(fault), ", ", TriggerText(fault.trigger));
}

std::string ChaosText(const ChaosReport& report, const ChaosPlan& plan,
                      const std::string& plan_name, const std::vector<size_t>& not_here) {
  std::string text =
      absl::StrCat("ddprun: chaos: ", report.faults.size(), " injected, ", plan.faults.size(),
                   " planned in ", Shown(plan_name, kReasonShown), ", seed ", plan.seed, "\n");
  if (!report.faults.empty()) absl::StrAppend(&text, Table(report));
  for (const size_t index : not_here) {
    absl::StrAppend(&text, "  not injected here: ", index + 1, " (line ", plan.faults[index].line,
                    "), ", DescribeFault(plan.faults[index]), "\n");
  }
  for (const OtherEnd& other : report.others) {
    absl::StrAppend(&text, "  beside the plan, generation ", other.generation,
                    " ended: ", Shown(other.reason, kReasonShown),
                    other.rule.empty() ? "" : absl::StrCat(" (rule ", other.rule, ")"), "\n");
  }
  absl::Duration away;
  uint64_t lost = 0;
  for (const FaultCost& cost : report.faults) {
    away += cost.training.has_value() ? *cost.training : cost.resumed.value_or(absl::Duration());
    lost += cost.steps_lost.value_or(0);
  }
  absl::StrAppend(&text, "  in all: ", CostTimeText(away), " of recovery, ", lost,
                  " marked steps lost, ", CountText(report.restarts, "restart"), " charged");
  if (!report.outcome.empty()) {
    absl::StrAppend(&text, "; the job ", report.outcome,
                    report.rule.empty() ? "" : absl::StrCat(" (rule ", report.rule, ")"));
  }
  text += '\n';
  AppendVerdict(report, &text);
  return text;
}

}  // namespace ddprun::launcher
