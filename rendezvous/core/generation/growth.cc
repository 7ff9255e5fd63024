#include "rendezvous/core/generation/growth.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/timing.h"

// Whether a running generation may end for newcomers (R3), and whether earlier growths paid off.
//
// Every growth stops all workers, so a node that joins and fails again and again could keep a
// healthy job from training. A growth is therefore on trial (members_before_ is set) until one of
// two things happens:
//   NoteEnd      a generation ends after kProgressUptime or more (60 s, which is longer than the
//                start of workers): the growth has paid off
//   NoteFormed   a generation has no more members than before the growth: it gained nothing
// A growth that begins meanwhile replaces the one on trial. Comparing sizes once, when the next
// generation forms, isn't enough: a node that joins and dies 20 seconds later is counted in that
// generation, and would look like a success each time.
//
// Example: 2 members, and a third node that never stays for long.
//
//   call                  members_before_  fruitless_  least_uptime()
//   Begin(2, 1)           2                0           0 s
//   NoteFormed(3)         2                0           0 s    larger, but still on trial
//   NoteEnd(20 s)         2                0           0 s    too short to settle it
//   NoteFormed(2)         none             1           10 s   gained nothing
//   Begin … NoteFormed(2) none             2           20 s
//
// The wait starts with kGrowthUptime, which is longer than the pauses of a node that comes and
// goes, and doubles: 10, 20, 40 … 2560 s, then kGrowthUptimeMax (the tenth would be 5120 s). With
// that bound of an hour, a job that runs for days can still grow. A growth that pays off resets the
// wait to zero.

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
  // The bound only keeps the shift defined: kGrowthUptimeMax is reached after 9 doublings.
  const uint32_t doublings = std::min(fruitless_ - 1, 30U);
  return std::min(kGrowthUptime * (int64_t{1} << doublings), kGrowthUptimeMax);
}

std::string Growth::BrokenInvariant(Instant now) const {
  if (!newcomers_since_.is_infinite() && newcomers_since_ > now) return "newcomers in the future";
  if (members_before_ && (*members_before_ == 0 || wanted_ == 0)) return "growth from nothing";
  return "";
}

}  // namespace ddprun::rendezvous
