#include "rendezvous/core/failures/hang_judge.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/hang_evidence.h"

namespace ddprun::rendezvous {
namespace {

using Ranks = std::vector<const RankProgress*>;

bool IsMarked(const RankProgress& rank) { return rank.worker.phase != ProgressPhase::kNone; }

template <typename Predicate>
Ranks Select(const Ranks& ranks, Predicate predicate) {
  Ranks selected;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(selected),
               [&](const RankProgress* rank) { return predicate(*rank); });
  return selected;
}

// Those that may have work to do.
Ranks Awaited(const std::vector<RankProgress>& all) {
  Ranks ranks;
  for (const RankProgress& rank : all) {
    const ProgressPhase phase = rank.worker.phase;
    if (phase != ProgressPhase::kIdle && phase != ProgressPhase::kDone) ranks.push_back(&rank);
  }
  return ranks;
}

// Those that all others may be waiting for.
Ranks Behind(const Ranks& ranks) {
  uint64_t least = kProgressStepMax;
  uint64_t most = 0;
  for (const RankProgress* rank : ranks) {
    if (!IsMarked(*rank)) continue;
    least = std::min(least, rank->worker.step);
    most = std::max(most, rank->worker.step);
  }
  return Select(ranks, [&](const RankProgress& rank) {
    return IsMarked(rank) ? rank.worker.step == least : least >= most;
  });
}

// Those whose place in the kernel is not the one of most ranks; all when there is no such place.
Ranks OddOnes(const Ranks& candidates, const Ranks& all) {
  std::map<std::string, size_t> places;
  for (const RankProgress* rank : all) ++places[rank->worker.where];
  const auto most =
      std::max_element(places.begin(), places.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == places.end() || most->first.empty() || 2 * most->second <= all.size()) {
    return candidates;
  }
  Ranks odd = Select(candidates, [&](const RankProgress& rank) {
    return !rank.worker.where.empty() && rank.worker.where != most->first;
  });
  return odd.empty() ? candidates : odd;
}

std::string StepsText(const Ranks& others) {
  uint64_t least = kProgressStepMax;
  uint64_t most = 0;
  for (const RankProgress* rank : others) {
    if (!IsMarked(*rank)) continue;
    least = std::min(least, rank->worker.step);
    most = std::max(most, rank->worker.step);
  }
  if (least > most) return "";
  return least == most ? absl::StrCat("; others are at step ", least)
                       : absl::StrCat("; others are at steps ", least, " to ", most);
}

HangVerdict Accuse(const Ranks& guilty, const Ranks& all, const std::string& why) {
  HangVerdict verdict;
  for (const RankProgress* rank : guilty) verdict.guilty.push_back(rank->rank);
  std::sort(verdict.guilty.begin(), verdict.guilty.end());
  const Ranks others = Select(all, [&](const RankProgress& rank) {
    return !std::binary_search(verdict.guilty.begin(), verdict.guilty.end(), rank.rank);
  });
  verdict.evidence = absl::StrCat(why, StepsText(others));
  if (verdict.guilty.size() > 1) {
    absl::StrAppend(&verdict.evidence, "; ", verdict.guilty.size(), " ", kTiedEvidence);
  }
  return verdict;
}

bool IsCounted(const RankProgress& rank) { return rank.worker.phase == ProgressPhase::kCounted; }

// Those whose steps are counted, as if they weren't.
std::vector<RankProgress> Unmarked(std::vector<RankProgress> ranks) {
  for (RankProgress& rank : ranks) {
    if (!IsCounted(rank)) continue;
    rank.worker.phase = ProgressPhase::kNone;
    rank.worker.suspect = false;
  }
  return ranks;
}

// Of a program that doesn't say where it is (an evaluation, a save). All ranks of it are stalled by
// one, so the one counts that all others have left behind at a collective; whoever can't be told
// apart by that is left alone, and so is whoever may yet work.
std::optional<HangVerdict> JudgeCounted(const Ranks& all) {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const RankProgress* rank : all) {
    if (rank->worker.collectives == 0) return std::nullopt;
    least = std::min(least, rank->worker.collectives);
    most = std::max(most, rank->worker.collectives);
  }
  if (least >= most) return std::nullopt;
  const Ranks behind =
      Select(all, [&](const RankProgress& rank) { return rank.worker.collectives == least; });
  for (const RankProgress* rank : behind) {
    const bool still = rank->worker.activity == Activity::kStill;
    if (!rank->worker.suspect || (!still && !rank->worker.overdue)) return std::nullopt;
  }
  return Accuse(behind, all,
                absl::StrCat("has begun ", least - 1, " collectives, and the others ", most - 1,
                             most - least > 1 ? " at most" : "", "; they wait for it"));
}

}  // namespace

std::optional<HangVerdict> JudgeHang(const std::vector<RankProgress>& ranks, bool complete) {
  const Ranks all = Awaited(ranks);
  const size_t counted = Select(all, IsCounted).size();
  // A program that marks on some ranks says where it is on those.
  if (counted > 0 && counted < all.size()) return JudgeHang(Unmarked(ranks), complete);
  if (Select(all, [](const RankProgress& rank) { return rank.worker.suspect; }).empty()) {
    return std::nullopt;
  }
  const Ranks stopped = Select(
      all, [](const RankProgress& rank) { return rank.worker.activity == Activity::kStopped; });
  if (!stopped.empty()) return Accuse(stopped, all, kStoppedEvidence);
  if (!complete) return std::nullopt;
  if (counted > 0) return JudgeCounted(all);

  const Ranks behind = Behind(all);
  for (const RankProgress* rank : behind) {
    if (IsMarked(*rank) && !rank->worker.suspect) return std::nullopt;
  }
  const Ranks busy = Select(
      behind, [](const RankProgress& rank) { return rank.worker.activity != Activity::kStill; });
  if (!busy.empty()) {
    const Ranks overdue = Select(all, [](const RankProgress& rank) { return rank.worker.overdue; });
    if (overdue.empty()) return std::nullopt;
    return Accuse(busy, all, "busy, but far beyond its usual time");
  }
  const bool strictly = behind.size() < all.size();
  return Accuse(OddOnes(behind, all), all,
                strictly ? "behind the others, and neither computes nor moves data"
                         : "neither computes nor moves data");
}

}  // namespace ddprun::rendezvous
