#include "worker/torch/errors/failure_notice.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

constexpr const char* kFailureKey = "failure";
constexpr const char* kDepartureKey = "departure";
constexpr std::chrono::milliseconds kCauseTimeout(333);
constexpr std::chrono::seconds kStayMax(5);
// The store is no place for long stacks.
constexpr size_t kCauseBytesMax = 4000;

std::string JoinedKey(uint32_t rank) { return absl::StrCat("joined/", rank); }
std::string LeftKey(uint32_t rank) { return absl::StrCat("left/", rank); }

// By the texts of shm::Communicator and of CollectiveCheck.
bool SaysThatRanksDiffer(absl::string_view text) {
  return absl::StrContains(text, "the ranks called different collectives") ||
         absl::StrContains(text, "the ranks don't do the same");
}

std::string StoppedKey(uint32_t rank) { return absl::StrCat("stopped/", rank); }

// The Session and step that a rank has reported by NotifyStop; zeros: none.
std::pair<uint64_t, int64_t> StopOf(c10d::Store& store, uint32_t rank) {
  std::pair<uint64_t, int64_t> stop = {0, 0};
  if (!store.check({StoppedKey(rank)})) return stop;
  const std::pair<std::string, std::string> words =
      absl::StrSplit(store.get_to_str(StoppedKey(rank)), ' ');
  const bool is_read =
      absl::SimpleAtoi(words.first, &stop.first) && absl::SimpleAtoi(words.second, &stop.second);
  return is_read ? stop : std::pair<uint64_t, int64_t>();
}

// The notices of this process. A child that the program forks, and that ends by exit(), isn't the
// worker: it would report over its parent's connections that the parent has left. So it has none.
// It never frees its copies of the parent's, because that may close these connections.
std::vector<FailureNotice>& Notices() {
  struct Kept {
    pid_t owner;
    std::vector<FailureNotice> notices;
  };
  static Kept* kept = nullptr;
  if (kept == nullptr || kept->owner != getpid()) kept = new Kept{.owner = getpid(), .notices = {}};
  return kept->notices;
}

// Keeps the first report, which is the cause if several ranks report.
void Report(const FailureNotice& notice, const char* key, absl::string_view message) {
  const std::string text = absl::StrCat(notice.rank, "\n", message.substr(0, kCauseBytesMax));
  notice.store->compareSet(key, std::vector<uint8_t>(),
                           std::vector<uint8_t>(text.begin(), text.end()));
}

// The reporting rank and its text.
std::pair<std::string, std::string> Reported(const FailureNotice& notice, const char* key) {
  return absl::StrSplit(notice.store->get_to_str(key), absl::MaxSplits('\n', 1));
}

// exit(3) unwinds nothing, so the contexts still exist. A status other than 0 is a failure, which
// the agent sees and which ends the generation.
void OnExit(int status, void* /*unused*/) {
  if (status == EXIT_SUCCESS) NotifyDeparture("called exit()");
}

absl::Status AddCause(const FailureNotice& notice, const absl::Status& peer_error) {
  notice.store->wait({kFailureKey}, kCauseTimeout);
  const std::pair<std::string, std::string> told = Reported(notice, kFailureKey);
  return WithCause(peer_error, told.first, told.second);
}

void StayForOthers(const FailureNotice& notice, bool failed) {
  std::vector<std::string> keys;
  for (uint32_t rank = 1; rank < notice.world_size; ++rank) {
    keys.push_back(failed ? LeftKey(rank) : JoinedKey(rank));
  }
  if (keys.empty() || notice.store->check(keys)) return;
  Log(LogLevel::kInfo, absl::StrCat("rank 0 hosts the store and stays until the others have ",
                                    failed ? "read why it failed" : "joined"));
  notice.store->wait(keys, kStayMax);
}

}  // namespace

void AddFailureNotice(FailureNotice notice) {
  [[maybe_unused]] static const int registered = on_exit(&OnExit, nullptr);
  Notices().push_back(std::move(notice));
}

void NotifyDeparture(const std::string& how) {
  for (const FailureNotice& notice : Notices()) {
    // A report in a store that this process hosts would end with the process.
    if (notice.world_size == 1 || (notice.rank_zero_hosts && notice.rank == 0)) continue;
    try {
      Report(notice, kDepartureKey, how);
    } catch (...) {
      return;  // the store went with its rank or launcher
    }
  }
}

void WithdrawDeparture() {
  for (const FailureNotice& notice : Notices()) {
    try {
      if (!notice.store->check({kDepartureKey})) continue;
      if (Reported(notice, kDepartureKey).first != absl::StrCat(notice.rank)) continue;
      notice.store->deleteKey(kDepartureKey);
    } catch (...) {
      return;  // the store is gone, and the report with it
    }
  }
}

std::optional<absl::Status> DepartureBehind(const absl::Status& peer_error) {
  absl::string_view seen = peer_error.message();
  absl::ConsumePrefix(&seen, kPeerErrorPrefix);
  for (const FailureNotice& notice : Notices()) {
    try {
      if (!notice.store->check({kDepartureKey})) continue;
      const auto [rank, how] = Reported(notice, kDepartureKey);
      if (absl::StrContains(seen, how)) return peer_error;  // which was asked about before
      return absl::UnavailableError(absl::StrCat(
          kPeerErrorPrefix, "rank ", rank, " ", how, ", with status 0, while rank ", notice.rank,
          " goes on: all ranks make the same steps; let them decide together, by a sum over all "
          "ranks (seen here as: ",
          seen, ")"));
    } catch (...) {
      return std::nullopt;  // the store has gone
    }
  }
  return std::nullopt;
}

void NotifyStop(uint64_t session, int64_t step) {
  for (const FailureNotice& notice : Notices()) {
    if (notice.world_size == 1) continue;
    try {
      notice.store->set(StoppedKey(notice.rank), absl::StrCat(session, " ", step));
    } catch (...) {
      return;  // the store went with its rank or launcher
    }
  }
}

std::optional<absl::Status> StopBehind(const absl::Status& status) {
  if (!SaysThatRanksDiffer(status.message())) return std::nullopt;
  for (const FailureNotice& notice : Notices()) {
    try {
      std::vector<std::pair<uint64_t, int64_t>> stops;
      for (uint32_t rank = 0; rank < notice.world_size; ++rank) {
        stops.push_back(StopOf(*notice.store, rank));
      }
      const auto last = std::max_element(stops.begin(), stops.end());
      const auto other =
          std::find_if(stops.begin(), stops.end(), [&](const auto& stop) { return stop != *last; });
      if (other == stops.end()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", last - stops.begin(), " called StopTraining() after step ",
                       last->second, ", and rank ", other - stops.begin(),
                       " didn't: all ranks stop after the same step; let them decide together, by "
                       "a sum over all ranks (seen here as: ",
                       status.message(), ")"));
    } catch (...) {
      return std::nullopt;  // the store has gone
    }
  }
  return std::nullopt;
}

void RemoveFailureNotice(const c10d::Store* store) {
  std::vector<FailureNotice>& notices = Notices();
  notices.erase(
      std::remove_if(notices.begin(), notices.end(),
                     [store](const FailureNotice& one) { return one.store.get() == store; }),
      notices.end());
}

void NotifyJoined(const FailureNotice& notice) {
  if (notice.rank_zero_hosts) notice.store->set(JoinedKey(notice.rank), std::string("1"));
}

absl::Status WithCause(const absl::Status& peer_error, const std::string& rank,
                       const std::string& message) {
  absl::string_view seen = peer_error.message();
  absl::ConsumePrefix(&seen, kPeerErrorPrefix);
  if (absl::StrContains(seen, message)) return peer_error;
  return absl::UnavailableError(absl::StrCat(kPeerErrorPrefix, "rank ", rank, " failed: ", message,
                                             " (seen here as: ", seen, ")"));
}

absl::Status ExchangeFailures(const absl::Status& status) {
  if (status.ok()) return status;
  const bool of_peer = absl::StartsWith(status.message(), kPeerErrorPrefix);
  if (of_peer) {
    if (std::optional<absl::Status> left = DepartureBehind(status)) return *std::move(left);
  }
  absl::Status told = StopBehind(status).value_or(status);
  for (const FailureNotice& notice : Notices()) {
    try {
      if (of_peer) {
        told = AddCause(notice, told);
      } else {
        Report(notice, kFailureKey, told.message());
      }
    } catch (...) {
      // The store went with its rank or launcher, or the peer had no time to say anything.
    }
  }
  return told;
}

void LeaveStores(const absl::Status& status) {
  for (const FailureNotice& notice : Notices()) {
    if (!notice.rank_zero_hosts) continue;
    try {
      if (notice.rank == 0) {
        StayForOthers(notice, !status.ok());
      } else if (!status.ok()) {
        NotifyJoined(notice);
        notice.store->set(LeftKey(notice.rank), std::string("1"));
      }  // else it has joined, and a host that ended well too may be gone: c10d warns of that
    } catch (...) {
      // The host of the store was killed, or a peer was that will never report that it has left.
    }
  }
  Notices().clear();
}

}  // namespace ddprun::worker
