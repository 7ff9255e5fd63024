#include "worker/torch/store/collective_check.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

constexpr const char* kEnd = "the end of the program";
constexpr const char* kAgreed = "=";

std::string AnnouncementKey(uint64_t sequence, uint32_t rank) {
  return absl::StrCat("check/", sequence, "/", rank);
}

std::string VerdictKey(uint64_t sequence) { return absl::StrCat("check/", sequence); }

// The checks of contexts that are destroyed. Threads: main() only.
std::vector<std::shared_ptr<CollectiveCheck>>& EndedChecks() {
  static auto* checks = new std::vector<std::shared_ptr<CollectiveCheck>>();
  return *checks;
}

}  // namespace

std::string JudgeOperations(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<size_t>> ranks_of;
  for (size_t rank = 0; rank < texts.size(); ++rank) ranks_of[texts[rank]].push_back(rank);
  if (ranks_of.size() <= 1) return "";
  std::vector<std::pair<size_t, std::string>> parts;  // by first rank
  parts.reserve(ranks_of.size());
  for (const auto& [text, ranks] : ranks_of) {
    parts.emplace_back(
        ranks[0], absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                               ranks.size() == 1 ? " is" : " are", " at ", text));
  }
  std::sort(parts.begin(), parts.end());
  const std::string what = absl::StrJoin(
      parts, "; ", [](std::string* out, const auto& part) { absl::StrAppend(out, part.second); });
  const char* advice =
      ranks_of.contains(kEnd)
          ? "give all ranks as many batches, or train inside DistributedDataParallel::Join"
          : "all ranks must take the same steps and call the same collectives in the same order";
  return absl::StrCat("the ranks don't do the same: ", what, "; ", advice);
}

CollectiveCheck::CollectiveCheck(c10::intrusive_ptr<c10d::Store> store, uint32_t rank,
                                 uint32_t world_size, absl::Duration timeout)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

void CollectiveCheck::SetActivity(std::string activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
}

void CollectiveCheck::Announce(const std::string& text) {
  store_->set(AnnouncementKey(++sequence_, rank_), text);
}

absl::Status CollectiveCheck::AwaitVerdict(bool ended) {
  const auto timeout = absl::ToChronoMilliseconds(timeout_);
  const std::string verdict_key = VerdictKey(sequence_);
  std::string verdict;
  if (rank_ == 0) {
    std::vector<std::string> texts;
    for (uint32_t rank = 0; rank < world_size_; ++rank) {
      store_->wait({AnnouncementKey(sequence_, rank)}, timeout);
      texts.push_back(store_->get_to_str(AnnouncementKey(sequence_, rank)));
    }
    verdict = JudgeOperations(texts);
    store_->set(verdict_key, verdict.empty() ? kAgreed : verdict);
    // All ranks have read the verdict of the operation before.
    if (sequence_ > 1) store_->deleteKey(VerdictKey(sequence_ - 1));
  } else {
    store_->wait({verdict_key}, timeout);
    verdict = store_->get_to_str(verdict_key);
    if (verdict == kAgreed) verdict.clear();
  }
  if (verdict.empty()) {
    store_->deleteKey(AnnouncementKey(sequence_, rank_));
    return absl::OkStatus();
  }
  const bool others_ended = verdict.find(kEnd) != std::string::npos;
  if (others_ended && !ended) {
    return absl::UnavailableError(absl::StrCat(kPeerErrorPrefix, verdict));
  }
  return absl::FailedPreconditionError(verdict);
}

absl::Status CollectiveCheck::Compare(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  Announce(activity_.empty() ? operation : absl::StrCat(operation, " (", activity_, ")"));
  return AwaitVerdict(/*ended=*/false);
}

void CollectiveCheck::AnnounceEnd() {
  const std::lock_guard lock(mutex_);
  Announce(kEnd);
}

absl::Status CollectiveCheck::CompareEnd() {
  const std::lock_guard lock(mutex_);
  try {
    return AwaitVerdict(/*ended=*/true);
  } catch (...) {
    // The store may be gone with the rank or the launcher that served it.
    return absl::OkStatus();
  }
}

void CompareAtEnd(std::shared_ptr<CollectiveCheck> check) {
  EndedChecks().push_back(std::move(check));
}

absl::Status CompareEnds() {
  absl::Status status;
  for (const auto& check : EndedChecks()) status.Update(check->CompareEnd());
  EndedChecks().clear();
  return status;
}

}  // namespace ddprun::worker
