#include "tools/doctor/core/machine_differences.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

std::string TraitOf(const MachineSummary& machine, const std::string& name) {
  for (const MachineTrait& trait : machine.traits) {
    if (trait.name == name) return trait.value;
  }
  return "unknown";
}

std::vector<MachineDifference::Side> SidesOf(const std::vector<MachineSummary>& machines,
                                             const std::string& name) {
  std::vector<MachineDifference::Side> sides;
  for (const MachineSummary& machine : machines) {
    std::string value = TraitOf(machine, name);
    const auto side = std::find_if(sides.begin(), sides.end(),
                                   [&](const auto& other) { return other.value == value; });
    if (side == sides.end()) {
      sides.push_back({.value = std::move(value), .hosts = {machine.host}});
    } else {
      side->hosts.push_back(machine.host);
    }
  }
  std::stable_sort(sides.begin(), sides.end(),
                   [](const auto& a, const auto& b) { return a.hosts.size() > b.hosts.size(); });
  return sides;
}

void AppendDifferences(const std::vector<MachineDifference>& differences, bool serious,
                       const char* title, std::string* text) {
  bool titled = false;
  for (const MachineDifference& difference : differences) {
    if (difference.serious != serious) continue;
    if (!titled) absl::StrAppend(text, "\n", title, "\n");
    titled = true;
    absl::StrAppend(text, "  ", difference.name, "\n");
    for (const auto& side : difference.sides) {
      absl::StrAppend(text, "    ", side.value, ": ", absl::StrJoin(side.hosts, ", "), "\n");
    }
  }
}

}  // namespace

std::vector<MachineDifference> CompareMachines(const std::vector<MachineSummary>& machines) {
  std::vector<MachineDifference> differences;
  if (machines.empty()) return differences;
  for (const MachineTrait& trait : machines.front().traits) {
    auto sides = SidesOf(machines, trait.name);
    if (sides.size() < 2) continue;
    differences.push_back(
        {.name = trait.name, .serious = trait.serious, .sides = std::move(sides)});
  }
  std::stable_partition(differences.begin(), differences.end(),
                        [](const MachineDifference& difference) { return difference.serious; });
  return differences;
}

std::string ComparisonText(const std::vector<MachineSummary>& machines) {
  std::vector<std::string> hosts;
  hosts.reserve(machines.size());
  for (const MachineSummary& machine : machines) hosts.push_back(machine.host);
  const std::vector<MachineDifference> differences = CompareMachines(machines);
  std::string text =
      absl::StrCat(CountText(machines.size(), "node"), ": ", absl::StrJoin(hosts, ", "), "\n");
  AppendDifferences(differences, true,
                    "differences that make runs fail, or wait for the slowest node", &text);
  AppendDifferences(differences, false, "other differences", &text);
  if (machines.empty()) return text;
  absl::StrAppend(&text, "\nthe same on all\n");
  for (const MachineTrait& trait : machines.front().traits) {
    if (SidesOf(machines, trait.name).size() > 1) continue;
    absl::StrAppendFormat(&text, "  %-22s %s\n", trait.name, trait.value);
  }
  return text;
}

}  // namespace ddprun::launcher
