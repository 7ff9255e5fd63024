#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_

#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/generation/membership_policy.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::rendezvous {

// The wait for the next generation: since when the job waits, for what reason, and the ranks of the
// last generation (R2, R3). DecideForming() decides when it is over; Forming keeps its inputs.
// Pure.
class Forming {
 public:
  // The job begins to wait for its first generation.
  void BeginFirst(Instant now);
  // The job begins to wait for another generation. Params: why: why the last one ended; rule: the
  // rule by which it ended, which is also that of the next one; pause: before the wait. Requires:
  // there was a generation.
  void BeginNext(Instant now, RoundCause cause, std::string why, Rule rule, absl::Duration pause);
  // Keeps the ranks of the generation that is over.
  void RememberRanks(const std::vector<RoundMember>& members);
  // To be called whenever `enough` (the job waits for nodes, and nodes_min are here) may have
  // changed.
  void Watch(Instant now, bool enough);

  // For the job's record, and back from it.
  FormingRecord ToRecord(Instant now) const;
  void Recover(Instant now, const FormingRecord& record);

  // Whether the generation forms now. The decision's rule is the one by which it forms, or the job
  // gives up.
  FormingDecision Decide(const JobSpec& spec, uint32_t present, Instant now) const;
  // Whether this is the pause before a restart.
  bool pausing(Instant now) const { return now < since_; }
  bool first() const { return cause_ == RoundCause::kFirst; }
  // Why the last generation ended, for people; "" = there was none.
  const std::string& why() const { return why_; }
  // Node ids by group rank.
  const std::vector<NodeId>& previous_ranks() const { return previous_ranks_; }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  RoundCause cause_ = RoundCause::kFirst;
  Instant since_;  // in the future: a pause; never for the first generation
  Instant enough_since_ = Instant::Infinite();  // <= now; infinite: fewer than nodes_min
  std::string why_;                             // empty before the first
  Rule rule_ = Rule::kAllNodes;                 // unused for the first
  std::vector<NodeId> previous_ranks_;          // empty before the first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_FORMING_H_
