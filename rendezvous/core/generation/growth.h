#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_GROWTH_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_GROWTH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/generation/membership_policy.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::rendezvous {

// When a running generation ends so that newcomers can take part (R3), and whether that was worth
// it. A growth gained nothing if the job is no larger afterwards, at once or because it lost nodes
// before a generation had run for kProgressUptime. After each such growth in a row, the next
// generation that ends for newcomers must have run twice as long. Pure.
//
//   Begin ─► (closing) ─NoteFormed─► on trial ─NoteEnd, NoteFormed─► settled
class Growth {
 public:
  // To be called whenever `any_newcomers` (a generation runs and newcomers wait) may have changed.
  void Watch(Instant now, bool any_newcomers);
  // Whether the round ends now for this number of newcomers.
  GrowthDecision Decide(const JobSpec& spec, const Round& round, uint32_t newcomers,
                        Instant now) const;

  // A generation of `members` nodes ends for `newcomers` nodes.
  void Begin(uint32_t members, uint32_t newcomers);
  // A generation ended, for any reason, after `uptime`.
  void NoteEnd(absl::Duration uptime);
  // A generation of `members` nodes was formed.
  void NoteFormed(uint32_t members);

  // How many of the newcomers of the last growth are gone. Params: newcomers: those that are here.
  uint32_t Missing(uint32_t newcomers) const {
    return newcomers < wanted_ ? wanted_ - newcomers : 0;
  }
  // How long a generation must have run before it ends for newcomers: zero, or from kGrowthUptime
  // to kGrowthUptimeMax.
  absl::Duration least_uptime() const;
  // Growths in a row that gained nothing.
  uint32_t fruitless() const { return fruitless_; }
  // For the job's record, and back from it.
  GrowthRecord ToRecord() const;
  void Recover(const GrowthRecord& record);
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  Instant newcomers_since_ = Instant::Infinite();  // <= now, or infinite: there are none
  // Number of members before the last growth, until it is settled what the growth gained.
  std::optional<uint32_t> members_before_;
  uint32_t wanted_ = 0;  // newcomers that the last growth was for; 0 = there was none
  uint32_t fruitless_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_GROWTH_H_
