#include "tests/sim/shrink.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/sim/plan_text.h"

namespace ddprun::sim {

namespace {

constexpr uint64_t kNoises = 4;  // tried with each smaller plan
constexpr uint64_t kRunsMax = 2000;
constexpr size_t kLinesShown = 120;  // of the timeline

// The checker's message without time, numbers and what follows the first line.
std::string Checker(const std::string& broken) {
  const std::string line = broken.substr(0, broken.find('\n'));
  const size_t words = line.find(' ');
  std::string checker = words == std::string::npos ? line : line.substr(words);
  std::erase_if(checker, [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  // A duration may have any number of units.
  const size_t lasted = checker.rfind(" for ");
  return lasted == std::string::npos ? checker : checker.substr(0, lasted);
}

class Shrinker {
 public:
  Shrinker(uint64_t seed, Sabotage sabotage) : seed_(seed), sabotage_(sabotage) {
    ClusterSim sim(seed, sabotage, /*trace=*/false);
    best_ = sim.plan();
    nodes_ = static_cast<uint32_t>(sim.nodes());
    broken_ = sim.Run().broken;
    shrunk_.faults_before = best_.faults.size();
  }

  Shrunk Run() {
    if (!broken_.empty()) Reduce();
    return Report();
  }

 private:
  void Reduce() {
    FaultPlan calm = best_;
    calm.calm = true;
    Try(calm);
    size_t size = 0;
    do {
      size = Size();
      for (size_t part = std::max<size_t>(best_.faults.size() / 2, 1); part > 0; part /= 2) {
        LeaveOutFaults(part);
      }
      LeaveOutNodes();
    } while (Size() < size);
  }

  size_t Size() const { return best_.faults.size() + nodes_ - best_.absent.size(); }

  void LeaveOutFaults(size_t part) {
    for (size_t from = 0; from < best_.faults.size();) {
      FaultPlan less = best_;
      const auto begin = less.faults.begin() + static_cast<std::ptrdiff_t>(from);
      const size_t to = std::min(from + part, less.faults.size());
      less.faults.erase(begin, less.faults.begin() + static_cast<std::ptrdiff_t>(to));
      if (!Try(std::move(less))) from += part;
    }
  }

  void LeaveOutNodes() {
    for (uint32_t node = nodes_; node-- > 0;) {
      if (best_.absent.contains(node)) continue;
      FaultPlan less = best_;
      less.absent.insert(node);
      std::erase_if(less.faults, [node](const PlannedFault& f) { return f.node == node; });
      Try(std::move(less));
    }
  }

  bool Try(FaultPlan plan) {
    for (uint64_t noise = 0; noise <= kNoises && shrunk_.runs < kRunsMax; ++noise) {
      if (noise > 0) plan.noise = noise;
      ++shrunk_.runs;
      ClusterSim sim(seed_, sabotage_, /*trace=*/false);
      sim.Follow(plan);
      if (Checker(sim.Run().broken) != Checker(broken_)) continue;
      best_ = std::move(plan);
      return true;
    }
    return false;
  }

  Shrunk Report() {
    ClusterSim sim(seed_, sabotage_, /*trace=*/true);
    sim.Follow(best_);
    const ClusterSim::Result result = sim.Run();
    shrunk_.plan = best_;
    shrunk_.nodes = nodes_ - best_.absent.size();
    shrunk_.broken = result.broken;
    std::vector<std::string> lines = absl::StrSplit(result.trace_tail, '\n');
    if (lines.size() > kLinesShown) lines.erase(lines.begin(), lines.end() - kLinesShown);
    shrunk_.timeline = absl::StrJoin(lines, "\n");
    return shrunk_;
  }

  const uint64_t seed_;
  const Sabotage sabotage_;
  uint32_t nodes_ = 0;
  std::string broken_;
  FaultPlan best_;
  Shrunk shrunk_;
};

}  // namespace

Shrunk Shrink(uint64_t seed, Sabotage sabotage) { return Shrinker(seed, sabotage).Run(); }

std::string Describe(uint64_t seed, const Shrunk& shrunk) {
  if (shrunk.broken.empty()) return absl::StrCat("seed ", seed, " breaks nothing\n");
  std::string text = absl::StrCat("seed ", seed, " in short: ", shrunk.plan.faults.size(), " of ",
                                  shrunk.faults_before, " faults, ", shrunk.nodes, " nodes (after ",
                                  shrunk.runs, " runs)\n");
  absl::StrAppend(&text, ToText({.seed = seed, .plan = shrunk.plan}));
  return absl::StrCat(text, "what happens:\n", shrunk.timeline, "\n", shrunk.broken, "\n");
}

}  // namespace ddprun::sim
