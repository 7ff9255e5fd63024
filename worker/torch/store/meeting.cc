#include "worker/torch/store/meeting.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {
namespace {

constexpr const char* kPresenceTopic = "here";

std::string PresenceKey(uint32_t rank) { return absl::StrCat(kPresenceTopic, "/", rank); }

std::string Encode(const Presence& presence) {
  return absl::StrCat(presence.host, "\n", presence.backend, "\n", presence.problem);
}

Presence Decode(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  Presence presence;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &presence.host)) {
    presence.problem = "it runs another version of ddprun";
    return presence;
  }
  presence.backend = parts[1];
  presence.problem = parts[2];
  return presence;
}

}  // namespace

void NotifyProblem(c10d::Store& store, uint32_t rank, const std::string& problem) {
  store.set(PresenceKey(rank), Encode({.problem = problem}));
}

absl::Status CompareBackends(const std::vector<Presence>& ranks) {
  std::map<std::string, std::vector<size_t>> ranks_of;
  for (size_t rank = 0; rank < ranks.size(); ++rank) ranks_of[ranks[rank].backend].push_back(rank);
  if (ranks_of.size() <= 1) return absl::OkStatus();
  const std::string what = absl::StrJoin(ranks_of, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, "'", entry.first, "' on ", entry.second.size() == 1 ? "rank " : "ranks ",
                    absl::StrJoin(entry.second, ", "));
  });
  return absl::InvalidArgumentError(
      absl::StrCat("the backend differs between the ranks: ", what,
                   "; name the same one for all, in the program or in DDPRUN_BACKEND"));
}

absl::StatusOr<std::vector<Presence>> MeetPeers(c10d::Store& store, uint32_t rank,
                                                uint32_t world_size, const Presence& mine,
                                                absl::Duration timeout) {
  std::vector<std::string> words;
  if (AsGathering(store) != nullptr) {
    words = GatherWords(store, kPresenceTopic, rank, world_size, Encode(mine), timeout);
  } else {
    store.set(PresenceKey(rank), Encode(mine));
  }
  std::vector<Presence> ranks;
  for (uint32_t other = 0; other < world_size; ++other) {
    if (words.size() == other) {  // one by one, so a problem ends the wait for those after it
      store.wait({PresenceKey(other)}, absl::ToChronoMilliseconds(timeout));
      words.push_back(store.get_to_str(PresenceKey(other)));
    }
    ranks.push_back(Decode(words[other]));
    if (ranks.back().problem.empty()) continue;
    return absl::UnavailableError(
        absl::StrCat(kPeerErrorPrefix, "rank ", other, " can't take part: ", ranks.back().problem));
  }
  const absl::Status same = CompareBackends(ranks);
  if (!same.ok()) return same;
  return ranks;
}

namespace {

constexpr const char* kSame = "=";
constexpr const char* kVerdictKey = "verdict";
// The prefix of "<rank> can't train: <problem>", which takes the place of hashes or a verdict.
constexpr const char* kProblem = "!";
constexpr const char* kHashes = "#";

std::string HashesOf(const std::vector<std::string>& texts) {
  std::string hashes;
  for (const std::string& text : texts) {
    const uint64_t hash = HashOf(text);
    for (int shift = 0; shift < 64; shift += 8) hashes += static_cast<char>(hash >> shift);
  }
  return hashes;
}

std::string HashesKey(uint64_t rank) { return absl::StrCat("hashes/", rank); }
std::string TextKey(uint64_t rank) { return absl::StrCat("text/", rank); }

std::string WaitFor(c10d::Store& store, const std::string& key, absl::Duration timeout) {
  return Gather(store, "", "", {key}, timeout)[0];
}

// A rank that differs from rank 0, and the first text that differs; or the problem that a rank has
// reported.
struct Difference {
  uint64_t rank = 0;
  size_t index = 0;
  std::string problem;
};

std::string VerdictOf(const std::optional<Difference>& difference) {
  if (!difference.has_value()) return kSame;
  if (!difference->problem.empty()) return absl::StrCat(kProblem, difference->problem);
  return absl::StrCat(difference->rank, " ", difference->index);
}

// Returns nullopt if the verdict isn't one of this library.
std::optional<Difference> ParseVerdict(const std::string& verdict) {
  if (absl::StartsWith(verdict, kProblem)) return Difference{.problem = verdict.substr(1)};
  const std::pair<std::string, std::string> parts = absl::StrSplit(verdict, ' ');
  Difference difference;
  if (!absl::SimpleAtoi(parts.first, &difference.rank) ||
      !absl::SimpleAtoi(parts.second, &difference.index)) {
    return std::nullopt;
  }
  return difference;
}

// Rank 0's part.
std::optional<Difference> FindDifference(c10d::Store& store, const ModelCheckPlan& plan,
                                         const std::string& mine) {
  std::vector<std::string> keys;
  for (uint32_t rank = 1; rank < plan.world_size; ++rank) keys.push_back(HashesKey(rank));
  std::vector<std::string> hashes;
  if (AsGathering(store) != nullptr) hashes = Gather(store, "", "", keys, plan.timeout);
  for (uint32_t rank = 1; rank < plan.world_size; ++rank) {
    // One by one, a problem ends the wait for those after it.
    if (hashes.size() < rank) hashes.push_back(WaitFor(store, HashesKey(rank), plan.timeout));
    std::string theirs = hashes[rank - 1];
    if (absl::StartsWith(theirs, kProblem)) return Difference{.problem = theirs.substr(1)};
    theirs.erase(0, 1);
    if (theirs == mine) continue;
    const size_t common = std::min(mine.size(), theirs.size());
    size_t byte = 0;
    while (byte < common && mine[byte] == theirs[byte]) ++byte;
    return Difference{.rank = rank, .index = byte / sizeof(uint64_t)};
  }
  return std::nullopt;
}

// Returns the first difference, the same on every rank; nullopt = none.
std::optional<Difference> AgreeOnDifference(c10d::Store& store, const ModelCheckPlan& plan,
                                            const std::string& mine) {
  if (plan.rank == 0) {
    std::optional<Difference> found = FindDifference(store, plan, mine);
    store.set(kVerdictKey, VerdictOf(found));
    return found;
  }
  const std::string verdict = Gather(store, HashesKey(plan.rank), absl::StrCat(kHashes, mine),
                                     {kVerdictKey}, plan.timeout)[0];
  return verdict == kSame ? std::nullopt : ParseVerdict(verdict);
}

}  // namespace

uint64_t HashOf(absl::string_view bytes) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  }
  return hash;
}

absl::Status CompareModels(c10d::Store& store, const ModelCheckPlan& plan,
                           const std::vector<std::string>& texts) {
  const std::optional<Difference> difference = AgreeOnDifference(store, plan, HashesOf(texts));
  if (!difference.has_value()) return absl::OkStatus();
  if (!difference->problem.empty()) {
    return absl::UnavailableError(absl::StrCat(kPeerErrorPrefix, "rank ", difference->problem));
  }
  if (plan.rank == 0 || plan.rank == difference->rank) {
    store.set(TextKey(plan.rank), difference->index < texts.size()
                                      ? absl::StrCat("'", texts[difference->index], "'")
                                      : "nothing in its place");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      plan.what, " differs between the ranks: ", WaitFor(store, TextKey(0), plan.timeout),
      " on rank 0 and ", WaitFor(store, TextKey(difference->rank), plan.timeout), " on rank ",
      difference->rank, "; ", plan.advice));
}

void NotifyModelProblem(c10d::Store& store, uint32_t rank, const std::string& problem) {
  store.set(rank == 0 ? kVerdictKey : HashesKey(rank),
            absl::StrCat(kProblem, rank, " can't train: ", problem));
}

}  // namespace ddprun::worker
