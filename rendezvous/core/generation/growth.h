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
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// When a running generation ends so that newcomers can take part (R3), and whether it was worth it:
// a growth after which the job is no larger than before, at once or because it lost nodes again
// before it had run for kProgressUptime, has gained nothing. After each such one in a row the next
// generation that may end for newcomers must have run twice as long. Pure.
//
//   Begin ─► (closing) ─NoteFormed─► on trial ─NoteEnd, NoteFormed─► settled
class Growth {
 public:
  // Wanted whenever it may have changed whether a generation runs, and newcomers wait for it.
  void Watch(Instant now, bool any_newcomers);
  // Whether the round ends for so many newcomers now.
  GrowthDecision Decide(const JobSpec& spec, const Round& round, uint32_t newcomers,
                        Instant now) const;

  // A generation of so many members ends for so many newcomers.
  void Begin(uint32_t members, uint32_t newcomers);
  // A generation ended that had run for so long, whyever.
  void NoteEnd(absl::Duration uptime);
  // The next one has so many members.
  void NoteFormed(uint32_t members);

  // How many of those that the last growth was for are gone. Params: newcomers: that are here.
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
  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant(Instant now) const;

 private:
  Instant newcomers_since_ = Instant::Infinite();  // <= now, or infinite: there are none
  // How many members there were before the last growth, as long as it isn't settled what it gained.
  std::optional<uint32_t> members_before_;
  uint32_t wanted_ = 0;  // newcomers that the last growth was for; 0 = there was none
  uint32_t fruitless_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_GROWTH_H_
