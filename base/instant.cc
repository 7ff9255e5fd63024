#include "base/instant.h"

#include "absl/strings/str_format.h"

namespace ddprun {

Instant operator+(Instant at, absl::Duration d) {
  if (at.is_infinite() || d == absl::InfiniteDuration()) return Instant::Infinite();
  int64_t sum = 0;
  if (!__builtin_add_overflow(at.ns_, absl::ToInt64Nanoseconds(d), &sum)) return Instant(sum);
  return d > absl::ZeroDuration() ? Instant::Infinite() : Instant(INT64_MIN);
}

Instant operator-(Instant at, absl::Duration d) { return at + (-d); }

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
