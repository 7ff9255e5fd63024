#include "tests/sim/plan_text.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::sim {

namespace {

constexpr std::array<const char*, kFaultKinds> kNames = {"kill_service",
                                                         "crash",
                                                         "crash_and_back",
                                                         "hang",
                                                         "fail",
                                                         "reset",
                                                         "cut_off",
                                                         "cut",
                                                         "freeze",
                                                         "stall",
                                                         "drain",
                                                         "signal",
                                                         "repeat",
                                                         "intrude",
                                                         "flap",
                                                         "lose_power",
                                                         "kill_at_verdict",
                                                         "damage_record",
                                                         "take_over"};

using Words = std::vector<std::string>;

bool Number(const std::string& word, uint64_t* number) { return absl::SimpleAtoi(word, number); }

bool Node(const std::string& word, uint32_t* node) {
  return word.starts_with("n") && absl::SimpleAtoi(word.substr(1), node);
}

std::optional<PlannedFault> FaultOf(const Words& words) {
  PlannedFault fault;
  absl::Duration at;
  const bool fits = words.size() == 8 && absl::ParseDuration(words[1], &at) &&
                    Node(words[2], &fault.node) && words[4] == "lasts" &&
                    absl::ParseDuration(words[5], &fault.lasts) && words[6] == "detail" &&
                    Number(words[7], &fault.detail);
  if (!fits) return std::nullopt;
  fault.at = Instant() + at;
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    if (words[3] != kNames[kind]) continue;
    fault.kind = static_cast<FaultKind>(kind);
    return fault;
  }
  return std::nullopt;
}

bool Take(const Words& words, SavedRun& run) {
  uint32_t node = 0;
  if (words.size() == 2 && words[0] == "seed") return Number(words[1], &run.seed);
  if (words.size() >= 2 && words[0] == "chance") {
    run.plan.calm = words.size() == 3 && words[2] == "calm";
    return Number(words[1], &run.plan.noise) && words.size() <= 3;
  }
  if (words.size() == 2 && words[0] == "absent" && Node(words[1], &node)) {
    run.plan.absent.insert(node);
    return true;
  }
  const std::optional<PlannedFault> fault = words[0] == "at" ? FaultOf(words) : std::nullopt;
  if (fault) run.plan.faults.push_back(*fault);
  return fault.has_value();
}

}  // namespace

std::string ToText(const SavedRun& run) {
  std::string text = absl::StrCat("seed ", run.seed, "\nchance ", run.plan.noise,
                                  run.plan.calm ? " calm\n" : "\n");
  for (const uint32_t node : run.plan.absent) absl::StrAppend(&text, "absent n", node, "\n");
  for (const PlannedFault& fault : run.plan.faults) {
    absl::StrAppend(&text, "at ", absl::FormatDuration(fault.at - Instant()), " n", fault.node, " ",
                    kNames.at(static_cast<size_t>(fault.kind)), " lasts ",
                    absl::FormatDuration(fault.lasts), " detail ", fault.detail, "  # ",
                    Describe(fault), "\n");
  }
  return text;
}

absl::StatusOr<SavedRun> FromText(const std::string& text) {
  SavedRun run;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view code = line.substr(0, line.find('#'));
    const Words words = absl::StrSplit(code, ' ', absl::SkipWhitespace());
    if (!words.empty() && !Take(words, run)) {
      return absl::InvalidArgumentError(absl::StrCat("this is no line of a plan: ", line));
    }
  }
  return run;
}

}  // namespace ddprun::sim
