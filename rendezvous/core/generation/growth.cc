#include "rendezvous/core/generation/growth.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

void Growth::Watch(Instant now, bool any_newcomers) {
  if (!any_newcomers) newcomers_since_ = Instant::Infinite();
  if (any_newcomers && newcomers_since_.is_infinite()) newcomers_since_ = now;
}

GrowthDecision Growth::Decide(const JobSpec& spec, const Round& round, uint32_t newcomers,
                              Instant now) const {
  return DecideGrowth(spec, {.members = static_cast<uint32_t>(round.members().size()),
                             .newcomers = newcomers,
                             .any_succeeded = round.any_succeeded(),
                             .now = now,
                             .newcomers_since = newcomers_since_,
                             .not_before = round.formed() + least_uptime()});
}

void Growth::Begin(uint32_t members, uint32_t newcomers) {
  DDPRUN_CHECK(members > 0 && newcomers > 0, "growth from nothing, or for nobody");
  members_before_ = members;
  wanted_ = newcomers;
}

void Growth::NoteEnd(absl::Duration uptime) {
  if (!members_before_ || uptime < kProgressUptime) return;
  members_before_.reset();
  fruitless_ = 0;
}

void Growth::NoteFormed(uint32_t members) {
  if (!members_before_ || members > *members_before_) return;
  members_before_.reset();
  ++fruitless_;
}

GrowthRecord Growth::ToRecord() const {
  return {.members_before = members_before_, .wanted = wanted_, .fruitless = fruitless_};
}

void Growth::Recover(const GrowthRecord& record) {
  members_before_ = record.members_before;
  wanted_ = record.wanted;
  fruitless_ = record.fruitless;
}

absl::Duration Growth::least_uptime() const {
  if (fruitless_ == 0) return absl::ZeroDuration();
  const uint32_t doublings = std::min(fruitless_ - 1, 30U);
  return std::min(kGrowthUptime * (int64_t{1} << doublings), kGrowthUptimeMax);
}

std::string Growth::BrokenInvariant(Instant now) const {
  if (!newcomers_since_.is_infinite() && newcomers_since_ > now) return "newcomers in the future";
  if (members_before_ && (*members_before_ == 0 || wanted_ == 0)) return "growth from nothing";
  return "";
}

}  // namespace ddprun::rendezvous
