#include "launcher/core/supervisor/agreed_stop.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

// When something fails after the commit, ranks that are just behind have this long to reach the
// step.
constexpr absl::Duration kJustBehind = absl::Milliseconds(250);

}  // namespace

void AgreedStop::Commit(Instant now, absl::Duration within) {
  DDPRUN_CHECK(!committed_, "a generation stops at one step");
  committed_ = true;
  reach_end_ = now + within / rendezvous::kReachingShare;
  save_end_ = now + within;
}

void AgreedStop::Hasten(Instant now) {
  DDPRUN_CHECK(committed_, "only workers on their way to a step can be hurried there");
  reach_end_ = std::min(reach_end_, now + kJustBehind);
}

AgreedStop::Due AgreedStop::OnTimer(Instant now) {
  if (now >= save_end_) return Due::kTimeIsOver;
  if (now < reach_end_) return Due::kNothing;
  reach_end_ = Instant::Infinite();
  return Due::kLook;
}

Instant AgreedStop::Deadline() const { return std::min(reach_end_, save_end_); }

std::string AgreedStop::BrokenInvariant() const {
  const bool has_bounds = !reach_end_.is_infinite() || !save_end_.is_infinite();
  return has_bounds && !committed_ ? "a stop that isn't agreed has bounds" : "";
}

}  // namespace ddprun::launcher
