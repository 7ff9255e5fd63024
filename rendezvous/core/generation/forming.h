#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_

#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/generation/membership_policy.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// The wait for the next generation: since when, for what, and what the last one leaves to it (R2,
// R3). When it is over is DecideForming's; this remembers what that asks for. Pure.
class Forming {
 public:
  // The job's first generation is waited for.
  void BeginFirst(Instant now);
  // The next one is. Params: why: the last one ended; rule: that made it end, and makes this one
  // begin; pause: before it. Requires: there was one.
  void BeginNext(Instant now, RoundCause cause, std::string why, Rule rule, absl::Duration pause);
  // Who had which rank in the generation that is over.
  void RememberRanks(const std::vector<RoundMember>& members);
  // Wanted whenever it may have changed whether nodes are waited for, and nodes_min are here.
  void Watch(Instant now, bool enough);

  // For the job's record, and back from it.
  FormingRecord ToRecord(Instant now) const;
  void Recover(Instant now, const FormingRecord& record);

  // Whether it forms now. The rule is that by which it does, or is given up.
  FormingDecision Decide(const JobSpec& spec, uint32_t present, Instant now) const;
  // It is the pause before a restart.
  bool pausing(Instant now) const { return now < since_; }
  bool first() const { return cause_ == RoundCause::kFirst; }
  // Why the last generation ended, for people; "" = there was none.
  const std::string& why() const { return why_; }
  // Node ids by group rank.
  const std::vector<NodeId>& previous_ranks() const { return previous_ranks_; }

  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant(Instant now) const;

 private:
  RoundCause cause_ = RoundCause::kFirst;
  Instant since_;                               // in the future: a pause, never before the first
  Instant enough_since_ = Instant::Infinite();  // <= now, or infinite: there are too few
  std::string why_;                             // empty before the first
  Rule rule_ = Rule::kAllNodes;                 // of all but the first
  std::vector<NodeId> previous_ranks_;          // empty before the first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_
