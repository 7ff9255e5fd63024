#include "base/instant.h"

#include "absl/strings/str_format.h"

namespace ddprun {

Instant operator+(Instant at, absl::Duration d) {
  if (at.is_infinite() || d == absl::InfiniteDuration()) return Instant::Infinite();
  return Instant(at.ns_ + absl::ToInt64Nanoseconds(d));
}

Instant operator-(Instant at, absl::Duration d) { return at + (-d); }

absl::Duration operator-(Instant a, Instant b) {
  if (a.is_infinite() && !b.is_infinite()) return absl::InfiniteDuration();
  return absl::Nanoseconds(a.ns_ - b.ns_);
}

std::string ToString(Instant at) {
  if (at.is_infinite()) return "never";
  return absl::StrFormat("%.3fs", static_cast<double>(at.nanoseconds()) / 1e9);
}

}  // namespace ddprun
