#include "rendezvous/core/failures/hang_judge.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "rendezvous/core/worker_failure.h"

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

// The ranks that may have work to do.
Ranks Awaited(const std::vector<RankProgress>& all) {
  Ranks ranks;
  for (const RankProgress& rank : all) {
    const ProgressPhase phase = rank.worker.phase;
    if (phase != ProgressPhase::kIdle && phase != ProgressPhase::kDone) ranks.push_back(&rank);
  }
  return ranks;
}

// The ranks that all others may be waiting for.
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

// The ranks at another place in the kernel than most; all ranks if no place has a majority.
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
  if (least > most || most == 0) return "";
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
  verdict.end = std::all_of(guilty.begin(), guilty.end(),
                            [](const RankProgress* rank) { return rank->worker.expired; });
  verdict.evidence = absl::StrCat(why, StepsText(others));
  if (verdict.guilty.size() > 1) {
    absl::StrAppend(&verdict.evidence, "; ", verdict.guilty.size(), " ", kTiedEvidence);
  }
  return verdict;
}

// Whether no worker has printed anything or used the processor for an explicit --hang_timeout.
bool AllIdle(const Ranks& all) {
  return std::all_of(all.begin(), all.end(),
                     [](const RankProgress* rank) { return rank->worker.idle; });
}

// If all ranks are stopped, a user has probably paused the job, so none is guilty. An explicit
// --hang_timeout ends them, too.
HangVerdict AccuseStopped(const Ranks& stopped, const Ranks& all, bool complete) {
  HangVerdict verdict = Accuse(stopped, all, kStoppedEvidence);
  const bool others_wait = complete && stopped.size() < all.size();
  verdict.end = verdict.end && (others_wait || AllIdle(stopped));
  return verdict;
}

bool IsCounted(const RankProgress& rank) { return rank.worker.phase == ProgressPhase::kCounted; }

// Turns ranks with counted steps into ranks without marks.
std::vector<RankProgress> Unmarked(std::vector<RankProgress> ranks) {
  for (RankProgress& rank : ranks) {
    if (!IsCounted(rank)) continue;
    rank.worker.phase = ProgressPhase::kNone;
    rank.worker.suspect = rank.worker.idle;
    rank.worker.expired = rank.worker.idle;
  }
  return ranks;
}

// A rank, and the number of collectives that it has begun in a group.
struct Count {
  const RankProgress* rank;
  uint64_t begun;
};

std::vector<Count> CountsOf(const Ranks& ranks) {
  std::vector<Count> counts;
  counts.reserve(ranks.size());
  for (const RankProgress* rank : ranks) counts.push_back({rank, rank->worker.collectives - 1});
  return counts;
}

uint64_t MostBegun(const std::vector<Count>& counts) {
  uint64_t most = 0;
  for (const Count& count : counts) most = std::max(most, count.begun);
  return most;
}

// The ranks, all at one step, that the others wait for in a collective; all of them if the counts
// aren't known, or are equal.
Ranks FewestBegun(const Ranks& ranks) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const RankProgress* rank : ranks) least = std::min(least, rank->worker.collectives);
  if (least == 0) return ranks;
  return Select(ranks,
                [least](const RankProgress& rank) { return rank.worker.collectives == least; });
}

// Whether others wait in a collective that no rank of `behind` has reached; false if the counts
// aren't known.
bool AreAwaited(const Ranks& behind, const Ranks& all) {
  const Ranks fewest = FewestBegun(all);
  return fewest.size() < all.size() &&
         std::all_of(behind.begin(), behind.end(), [&fewest](const RankProgress* rank) {
           return rank->worker.collectives == fewest.front()->worker.collectives;
         });
}

// "hasn't come to collective 87, for which rank 1 has waited 4s".
std::string AwaitedText(const std::vector<Count>& counts, uint64_t most, const std::string& group) {
  Ranks waiting;
  absl::Duration longest;
  for (const Count& count : counts) {
    if (count.begun != most) continue;
    waiting.push_back(count.rank);
    longest = std::max(longest, count.rank->worker.silent);
  }
  return absl::StrCat("hasn't come to collective ", most, group, ", for which ",
                      waiting.size() == 1 ? absl::StrCat("rank ", waiting.front()->rank, " has")
                                          : absl::StrCat(waiting.size(), " ranks have"),
                      " waited ",
                      absl::FormatDuration(absl::Trunc(longest, absl::Milliseconds(100))));
}

// The members of a group that all others have left behind at a collective, if all of these stand
// still.
std::optional<HangVerdict> JudgeGroup(const std::vector<Count>& counts, const std::string& group,
                                      const Ranks& all) {
  const auto [least, most] =
      std::minmax_element(counts.begin(), counts.end(),
                          [](const Count& a, const Count& b) { return a.begun < b.begun; });
  if (least == counts.end() || least->begun == most->begun) return std::nullopt;
  Ranks behind;
  for (const Count& count : counts) {
    if (count.begun != least->begun) continue;
    const WorkerProgress& worker = count.rank->worker;
    const bool still = worker.activity == Activity::kStill;
    if (!worker.suspect || (!still && !worker.overdue)) return std::nullopt;
    behind.push_back(count.rank);
  }
  return Accuse(behind, all, AwaitedText(counts, most->begun, group));
}

// Ranks that wait for one that has ended with status 0, and begins nothing more.
std::optional<HangVerdict> JudgeLeft(const std::vector<RankProgress>& ranks, const Ranks& all) {
  for (const RankProgress& left : ranks) {
    if (!left.worker.left) continue;
    for (const GroupProgress& begun : left.worker.groups) {
      const Ranks waiting = Select(all, [&begun](const RankProgress& rank) {
        const WorkerProgress& worker = rank.worker;
        return worker.suspect && worker.inside_group == begun.name &&
               std::any_of(worker.groups.begin(), worker.groups.end(),
                           [&begun](const GroupProgress& group) {
                             return group.name == begun.name && group.sequence > begun.sequence;
                           });
      });
      if (waiting.empty()) continue;
      HangVerdict verdict = Accuse(waiting, all, "");
      verdict.evidence = absl::StrCat("waits in a collective after number ", begun.sequence,
                                      " of group ", begun.name, ", the last that rank ", left.rank,
                                      " had begun when it ended with status 0");
      return verdict;
    }
  }
  return std::nullopt;
}

// Judges a program that doesn't say what it is doing (an evaluation, a save). One rank stalls all
// others, so the guilty one is the rank that all others have left behind at a collective. A rank
// that this doesn't single out is left alone, and so is one that may still be working. If all ranks
// have begun equally many collectives of the default group, the groups with all members known are
// compared.
std::optional<HangVerdict> JudgeCounted(const Ranks& all) {
  std::vector<Count> world;
  std::map<std::string, std::pair<uint32_t, std::vector<Count>>> groups;
  for (const RankProgress* rank : all) {
    if (rank->worker.collectives == 0) return std::nullopt;
    world.push_back({rank, rank->worker.collectives - 1});
    for (const GroupProgress& group : rank->worker.groups) {
      groups[group.name].first = group.size;
      groups[group.name].second.push_back({rank, group.sequence});
    }
  }
  std::optional<HangVerdict> verdict = JudgeGroup(world, "", all);
  const auto ends = std::minmax_element(
      world.begin(), world.end(), [](const Count& a, const Count& b) { return a.begun < b.begun; });
  if (verdict.has_value() || ends.first->begun != ends.second->begun) return verdict;
  for (const auto& [name, members] : groups) {
    if (members.first != members.second.size()) continue;
    verdict = JudgeGroup(members.second, absl::StrCat(" of group ", name), all);
    if (verdict.has_value()) return verdict;
  }
  return std::nullopt;
}

}  // namespace

std::optional<HangVerdict> JudgeHang(const std::vector<RankProgress>& ranks, bool complete) {
  const Ranks all = Awaited(ranks);
  const size_t counted = Select(all, IsCounted).size();
  // If a program marks its steps on some ranks, those marks say where it is, and counted steps are
  // ignored.
  if (counted > 0 && counted < all.size()) return JudgeHang(Unmarked(ranks), complete);
  if (Select(all, [](const RankProgress& rank) { return rank.worker.suspect; }).empty()) {
    return std::nullopt;
  }
  const Ranks stopped = Select(
      all, [](const RankProgress& rank) { return rank.worker.activity == Activity::kStopped; });
  if (!stopped.empty()) return AccuseStopped(stopped, all, complete);
  if (!complete) return std::nullopt;
  if (counted > 0) {
    std::optional<HangVerdict> verdict = JudgeCounted(all);
    if (!verdict.has_value()) verdict = JudgeLeft(ranks, all);
    if (verdict.has_value() || !AllIdle(all)) return verdict;
    return JudgeHang(Unmarked(ranks), complete);
  }

  const bool early = std::all_of(all.begin(), all.end(), [](const RankProgress* rank) {
    return !rank->worker.suspect || rank->worker.early;
  });
  const Ranks same_step = Behind(all);
  const Ranks behind = FewestBegun(same_step);
  if (early && !AreAwaited(behind, all)) return std::nullopt;
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
  if (behind.size() < same_step.size() || early) {
    const std::vector<Count> counts = CountsOf(early ? all : same_step);
    return Accuse(behind, all, AwaitedText(counts, MostBegun(counts), ""));
  }
  const bool strictly = behind.size() < all.size();
  return Accuse(OddOnes(behind, all), all,
                strictly ? "behind the others, and neither computes nor moves data"
                         : "neither computes nor moves data");
}

// How crossed collectives are proven. A rank that waits inside a collective (group g, number s)
// goes on when every member of g has begun number s of g. A rank's only thread begins nothing else
// while it waits. So rank q is stuck for good if some member that hasn't begun (g, s) is stuck,
// too:
//
//   rank 0 waits in all_reduce of group A, number 5; rank 1 has begun 4 of A
//   rank 1 waits in all_reduce of group B, number 3; rank 0 has begun 2 of B
//
// Rank 0 waits for rank 1, and rank 1 for rank 0. The stuck ranks are the greatest set in which
// each waits for another one of the set: begin with all ranks that wait inside a collective, and
// take out those that wait for no member of the set, until nothing changes. A rank that computes,
// sleeps or waits for anything else is never in the set, so neither is a rank that waits for it
// alone.
//
// If some members of a group haven't reported, it proves nothing: they may be on their way.

namespace {

constexpr size_t kShownRanks = 4;

// One member of a group.
struct Member {
  const RankProgress* rank;
  uint64_t sequence;
};

using Groups = std::map<std::string, std::vector<Member>>;

// The groups with reports from every member.
Groups CompleteGroups(const std::vector<RankProgress>& ranks) {
  Groups groups;
  std::map<std::string, std::set<uint32_t>> sizes;
  for (const RankProgress& rank : ranks) {
    for (const GroupProgress& group : rank.worker.groups) {
      groups[group.name].push_back({&rank, group.sequence});
      sizes[group.name].insert(group.size);
    }
  }
  std::erase_if(groups, [&](const auto& entry) {
    const std::set<uint32_t>& size = sizes.at(entry.first);
    return size.size() != 1 || *size.begin() != entry.second.size();
  });
  return groups;
}

const GroupProgress* InsideGroup(const WorkerProgress& worker) {
  const auto found = std::find_if(
      worker.groups.begin(), worker.groups.end(),
      [&worker](const GroupProgress& group) { return group.name == worker.inside_group; });
  return found == worker.groups.end() ? nullptr : &*found;
}

// Whether the rank stands inside a collective of a known group.
bool Waits(const RankProgress& rank, const Groups& groups) {
  const WorkerProgress& worker = rank.worker;
  return !worker.left && worker.activity == Activity::kStill && !worker.inside_call.empty() &&
         groups.contains(worker.inside_group) && InsideGroup(worker) != nullptr;
}

std::vector<const RankProgress*> MissingFor(const RankProgress& rank, const Groups& groups) {
  std::vector<const RankProgress*> missing;
  const uint64_t sequence = InsideGroup(rank.worker)->sequence;
  for (const Member& member : groups.at(rank.worker.inside_group)) {
    if (member.sequence < sequence) missing.push_back(member.rank);
  }
  return missing;
}

// Functions that can't meet, because Gloo gives each family tags of its own. "" = not known: it may
// meet any other.
std::string FamilyOf(const std::string& call) {
  static const std::map<std::string, std::string> kFamilies = {
      {"all_reduce", "all_reduce"},
      {"all_reduce_coalesced", "all_reduce"},
      {"broadcast", "broadcast"},
      {"broadcast_object_list", "broadcast"},
      {"barrier", "barrier"},
      {"all_gather", "all_gather"},
      {"all_gather_object", "all_gather"},
      {"all_gather_into_tensor", "all_gather"},
      {"gather", "gather"},
      {"gather_object", "gather"},
      {"scatter", "scatter"},
      {"scatter_object_list", "scatter"},
      {"reduce", "reduce"},
  };
  const auto found = kFamilies.find(call);
  return found == kFamilies.end() ? "" : found->second;
}

// "rank 0 waits in all_reduce, collective 5 of group A".
std::string PlaceText(const RankProgress& rank) {
  const WorkerProgress& worker = rank.worker;
  return absl::StrCat("rank ", rank.rank, " waits in ", worker.inside_call, ", collective ",
                      InsideGroup(worker)->sequence, " of group ", worker.inside_group);
}

HangProof Prove(std::vector<const RankProgress*> guilty, const std::string& evidence,
                const std::vector<const RankProgress*>& standing) {
  HangProof proof;
  proof.verdict.end = true;
  for (const RankProgress* rank : guilty) proof.verdict.guilty.push_back(rank->rank);
  std::sort(proof.verdict.guilty.begin(), proof.verdict.guilty.end());
  proof.verdict.evidence = evidence;
  proof.fingerprint = evidence;
  for (const RankProgress* rank : standing) {
    absl::StrAppend(&proof.fingerprint, ";", rank->rank, ":", rank->worker.inside_group, ":",
                    rank->worker.inside_call);
    for (const GroupProgress& group : rank->worker.groups) {
      absl::StrAppend(&proof.fingerprint, ",", group.name, "=", group.sequence);
    }
  }
  return proof;
}

std::optional<HangProof> ProveDeadlock(const std::vector<RankProgress>& ranks) {
  std::vector<const RankProgress*> guilty;
  for (const RankProgress& rank : ranks) {
    if (rank.worker.deadlocked) guilty.push_back(&rank);
  }
  if (guilty.empty()) return std::nullopt;
  return Prove(
      guilty,
      "deadlock: each of its threads waits for a lock that only another of them could release",
      guilty);
}

// All members that have not left stand inside a collective of the group.
bool AllWait(const std::string& group, const Groups& groups) {
  const std::vector<Member>& members = groups.at(group);
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    const WorkerProgress& worker = member.rank->worker;
    return worker.left || (Waits(*member.rank, groups) && worker.inside_group == group);
  });
}

// With Gloo, a rank that ends closes its connections, and the collective fails on its neighbors.
// A script may catch that error and go on; when its rank ends, the collective fails on the next
// neighbors. So a rank that has left the collective can still end the wait of the others. The wait
// lasts for good only if every remaining member is inside the collective.
std::optional<HangProof> ProveLeft(const std::vector<RankProgress>& ranks, const Groups& groups) {
  for (const RankProgress& rank : ranks) {
    if (!Waits(rank, groups) || !AllWait(rank.worker.inside_group, groups)) continue;
    for (const RankProgress* member : MissingFor(rank, groups)) {
      if (!member->worker.left) continue;
      return Prove({&rank},
                   absl::StrCat("rank ", member->rank, " has ended with status 0, and ",
                                PlaceText(rank), ", which rank ", member->rank, " had not begun"),
                   {&rank, member});
    }
  }
  return std::nullopt;
}

// All members wait in one number of a group, in calls that can't meet.
std::optional<HangProof> ProveKinds(const Groups& groups) {
  for (const auto& [name, members] : groups) {
    std::map<std::string, std::vector<const RankProgress*>> families;
    std::vector<const RankProgress*> all;
    for (const Member& member : members) {
      const bool here = Waits(*member.rank, groups) && member.rank->worker.inside_group == name &&
                        member.sequence == members.front().sequence;
      const std::string family = here ? FamilyOf(member.rank->worker.inside_call) : "";
      if (family.empty()) break;
      families[family].push_back(member.rank);
      all.push_back(member.rank);
    }
    if (all.size() != members.size() || families.size() < 2) continue;
    const auto most = std::max_element(
        families.begin(), families.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<const RankProgress*> guilty;
    for (const RankProgress* rank : all) {
      const bool is_odd = FamilyOf(rank->worker.inside_call) != most->first;
      if (2 * most->second.size() <= all.size() || is_odd) guilty.push_back(rank);
    }
    std::vector<std::string> calls;
    for (const auto& [family, ranks] : families) {
      calls.push_back(absl::StrCat(
          ranks.size() == 1 ? "rank " : "ranks ",
          absl::StrJoin(
              absl::MakeConstSpan(ranks).first(std::min(ranks.size(), kShownRanks)), ", ",
              [](std::string* out, const RankProgress* rank) { absl::StrAppend(out, rank->rank); }),
          ranks.size() > kShownRanks ? ", …" : "", ranks.size() == 1 ? " waits in " : " wait in ",
          ranks.front()->worker.inside_call));
    }
    return Prove(guilty,
                 absl::StrCat("crossed collectives: as collective ", members.front().sequence,
                              " of group ", name, " ", absl::StrJoin(calls, ", ")),
                 all);
  }
  return std::nullopt;
}

std::optional<HangProof> ProveCircle(const std::vector<RankProgress>& ranks, const Groups& groups) {
  std::set<const RankProgress*> stuck;
  for (const RankProgress& rank : ranks) {
    if (Waits(rank, groups)) stuck.insert(&rank);
  }
  for (size_t before = stuck.size() + 1; stuck.size() < before;) {
    before = stuck.size();
    std::erase_if(stuck, [&](const RankProgress* rank) {
      const std::vector<const RankProgress*> missing = MissingFor(*rank, groups);
      return std::none_of(missing.begin(), missing.end(),
                          [&](const RankProgress* member) { return stuck.contains(member); });
    });
  }
  if (stuck.empty()) return std::nullopt;
  std::vector<const RankProgress*> guilty(stuck.begin(), stuck.end());
  std::sort(guilty.begin(), guilty.end(),
            [](const RankProgress* a, const RankProgress* b) { return a->rank < b->rank; });
  std::vector<std::string> places;
  for (size_t i = 0; i < std::min(guilty.size(), kShownRanks); ++i) {
    places.push_back(PlaceText(*guilty[i]));
  }
  return Prove(guilty,
               absl::StrCat("crossed collectives, each waits for another: ",
                            absl::StrJoin(places, "; "), guilty.size() > kShownRanks ? "; …" : ""),
               guilty);
}

}  // namespace

std::optional<HangProof> ProveHang(const std::vector<RankProgress>& ranks, bool complete) {
  std::optional<HangProof> proof = ProveDeadlock(ranks);
  if (proof.has_value() || !complete) return proof;
  const Groups groups = CompleteGroups(ranks);
  proof = ProveLeft(ranks, groups);
  if (!proof.has_value()) proof = ProveKinds(groups);
  if (!proof.has_value()) proof = ProveCircle(ranks, groups);
  return proof;
}

}  // namespace ddprun::rendezvous
