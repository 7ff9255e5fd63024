#include "rendezvous/core/failures/hang_proof.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

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

namespace ddprun::rendezvous {
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
