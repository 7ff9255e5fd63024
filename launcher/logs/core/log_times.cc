#include "launcher/logs/core/log_times.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddprun::launcher {
namespace {

constexpr size_t kMarksMin = 64;
constexpr int kSharesOfAge = 16;

}  // namespace

void LogTimes::Note(Instant now, uint64_t size) {
  const Mark last = marks_.empty() ? Mark{} : marks_.back();
  // While nothing is written the last moment goes on being right.
  if (size <= last.size || now < last.at) return;
  marks_.push_back({.at = now, .size = size});
  if (marks_.size() >= thin_at_) Thin(now);
}

uint64_t LogTimes::SizeBefore(Instant at) const {
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), at,
                                      [](Instant t, const Mark& mark) { return t < mark.at; });
  return after == marks_.begin() ? 0 : std::prev(after)->size;
}

void LogTimes::Thin(Instant now) {
  std::vector<Mark> kept;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const bool is_end = kept.empty() || i + 1 == marks_.size();
    const bool is_needed =
        is_end || marks_[i + 1].at - kept.back().at > (now - marks_[i + 1].at) / kSharesOfAge;
    if (is_needed) kept.push_back(marks_[i]);
  }
  marks_ = std::move(kept);
  thin_at_ = std::max(kMarksMin, 2 * marks_.size());
}

}  // namespace ddprun::launcher
