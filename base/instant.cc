#include "base/instant.h"

#include "absl/strings/str_format.h"

namespace ddprun {
namespace {

// From zero to 2^33 s, 272 years: what almost all durations are. A tenth of a simulation was the
// arithmetic of time, most of it in calls of Abseil's shared library.
bool IsOrdinary(absl::Duration d) {
  return static_cast<uint64_t>(absl::time_internal::GetRepHi(d)) >> 33U == 0;
}

// As absl::ToInt64Nanoseconds. Requires: IsOrdinary(d).
int64_t Nanoseconds(absl::Duration d) {
  return absl::time_internal::GetRepHi(d) * 1'000'000'000 +
         absl::time_internal::GetRepLo(d) / absl::time_internal::kTicksPerNanosecond;
}

}  // namespace

Instant operator+(Instant at, absl::Duration d) {
  if (at.is_infinite() || d == absl::InfiniteDuration()) return Instant::Infinite();
  const int64_t ns = IsOrdinary(d) ? Nanoseconds(d) : absl::ToInt64Nanoseconds(d);
  int64_t sum = 0;
  if (!__builtin_add_overflow(at.ns_, ns, &sum)) return Instant(sum);
  return d > absl::ZeroDuration() ? Instant::Infinite() : Instant(INT64_MIN);
}

Instant operator-(Instant at, absl::Duration d) {
  int64_t difference = 0;
  if (!at.is_infinite() && IsOrdinary(d) &&
      !__builtin_sub_overflow(at.ns_, Nanoseconds(d), &difference)) {
    return Instant(difference);
  }
  return at + (-d);
}

absl::Duration operator-(Instant a, Instant b) {
  if (a.is_infinite() && !b.is_infinite()) return absl::InfiniteDuration();
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a.ns_, b.ns_, &difference)) return absl::Nanoseconds(difference);
  return absl::Nanoseconds(a.ns_) - absl::Nanoseconds(b.ns_);
}

std::string ToString(Instant at) {
  if (at.is_infinite()) return "never";
  return absl::StrFormat("%.3fs", static_cast<double>(at.nanoseconds()) / 1e9);
}

}  // namespace ddprun
