#include "worker/torch/store/meeting.h"

#include <map>

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

}  // namespace ddprun::worker
