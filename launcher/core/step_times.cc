#include "launcher/core/step_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddprun::launcher {
namespace {

constexpr uint64_t kHeldMax = 16384;
// Looks are 10 ms apart at least: the first and the last one are wrong by 4 % of it each.
constexpr absl::Duration kGathered = absl::Milliseconds(250);
constexpr double kBucketsPerDoubling = 8;
constexpr double kLeastMicroseconds = 16;  // the upper edge of the first bucket

absl::Duration FewStepsLimit(const StepTimes& times, absl::Duration slack) {
  const absl::Duration step = times.Quantile(0.5);
  return absl::Ceil(std::max({10 * step + slack, 12 * step, 2 * times.Quantile(1)}),
                    absl::Milliseconds(1));
}

}  // namespace

void StepTimes::Add(absl::Duration each, uint64_t count) {
  const double us = absl::ToDoubleMicroseconds(each);
  const double place = us <= kLeastMicroseconds
                           ? 0
                           : std::ceil(std::log2(us / kLeastMicroseconds) * kBucketsPerDoubling);
  const auto bucket = static_cast<size_t>(std::min(place, static_cast<double>(kBuckets - 1)));
  seen_ += count;
  count = std::min(count, kHeldMax / 2);  // one look never outweighs all others
  counts_[bucket] += static_cast<uint32_t>(count);
  microseconds_[bucket] += us * static_cast<double>(count);
  held_ += count;
  if (held_ < kHeldMax) return;
  held_ = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    const uint32_t kept = counts_[i] / 2;
    microseconds_[i] *= static_cast<double>(kept) / counts_[i];
    held_ += counts_[i] = kept;
  }
}

size_t StepTimes::BucketOf(double q) const {
  const double wanted = q * static_cast<double>(held_);
  uint64_t below = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    below += counts_[bucket];
    if (counts_[bucket] != 0 && static_cast<double>(below) >= wanted) return bucket;
  }
  return kBuckets;
}

absl::Duration StepTimes::Quantile(double q) const {
  const size_t bucket = BucketOf(q);
  if (bucket == kBuckets) return absl::ZeroDuration();
  const double doublings = static_cast<double>(bucket) / kBucketsPerDoubling;
  return absl::Microseconds(kLeastMicroseconds * std::exp2(doublings));
}

absl::Duration StepTimes::Median() const {
  const size_t bucket = BucketOf(0.5);
  if (bucket == kBuckets) return absl::ZeroDuration();
  return absl::Microseconds(microseconds_[bucket] / counts_[bucket]);
}

void StepPace::Add(absl::Duration together, uint64_t count) {
  gathered_ += together;
  gathered_steps_ += count;
  if (gathered_ < kGathered) return;
  const auto steps = static_cast<double>(std::exchange(gathered_steps_, 0));
  // Added once, however many steps: a program that resumes may jump to a later step.
  times_.Add(std::exchange(gathered_, absl::ZeroDuration()) / steps);
}

PhaseLimits LimitsOf(const StepTimes& times, absl::Duration slack,
                     absl::Duration first_step_timeout) {
  if (times.seen() < kStepsForCounted) {
    return {.suspect = first_step_timeout,
            .overdue = std::max(20 * first_step_timeout, kBusyLeast),
            .sample = std::clamp(first_step_timeout / 4, kSampleLeast, kUnlearnedSample)};
  }
  // Whole milliseconds: an Instant has no fractions of a nanosecond, and a limit must be reached by
  // the look that was planned for it.
  const absl::Duration longest = absl::Ceil(
      times.Quantile(times.seen() < kStepsForQuantile ? 1 : 0.999), absl::Milliseconds(1));
  PhaseLimits limits;
  limits.suspect =
      times.seen() < kStepsForMaximum ? FewStepsLimit(times, slack) : 3 * longest + kSuspectSlack;
  limits.sample = std::clamp(4 * longest, kSampleLeast, kSampleMost);
  limits.overdue =
      std::max({20 * times.Quantile(0.99), limits.suspect + 2 * limits.sample, kBusyLeast});
  return limits;
}

PhaseLimits LimitsOfCounted(const StepTimes& times, absl::Duration slack,
                            absl::Duration first_step_timeout) {
  PhaseLimits limits;
  limits.suspect = times.seen() < kStepsForCounted ? std::min(kCountedUnlearned, first_step_timeout)
                                                   : FewStepsLimit(times, slack);
  limits.sample = kCountedSample;
  limits.overdue = std::max(first_step_timeout, 2 * limits.suspect);
  return limits;
}

void Laggards::Begin(uint32_t worker_count) {
  *this = Laggards();
  runs_.assign(worker_count, true);
}

void Laggards::OnEnded(Instant now, uint32_t local_rank, bool well) {
  if (!well) return Stop();
  if (local_rank >= runs_.size()) return;
  runs_[local_rank] = false;
  const auto left = static_cast<size_t>(std::count(runs_.begin(), runs_.end(), true));
  const bool names = left > 0 && (named_ == 0 || (named_ > 1 && left == 1));
  due_ = names ? now + kLaggardsAfter : Instant::Infinite();
}

void Laggards::Stop() {
  runs_.clear();
  due_ = Instant::Infinite();
}

std::vector<uint32_t> Laggards::OnTimer(Instant now) {
  if (now < due_) return {};
  due_ = Instant::Infinite();
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i]) ranks.push_back(i);
  }
  named_ = ranks.size();
  return ranks;
}

}  // namespace ddprun::launcher
