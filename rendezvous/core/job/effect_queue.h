#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_

#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/core/events.h"

namespace ddprun::rendezvous {

// The effects of a job in the order in which they are carried out: an effect after a Persist waits
// until the record is written (R10). Two kinds overtake it, so that no node loses its lease while a
// disk is slow: probes that measure a lease, and a Welcome, which says nothing that was decided.
// Only the first record of a job holds a Welcome back, because it has the term that the Welcome
// brings. Pure.
class EffectQueue {
 public:
  // Params: recorded: the journal already has a record of the job.
  explicit EffectQueue(bool recorded = false) : recorded_(recorded) {}

  // Adds the effects of one step. Returns those that overtake the others, to be carried out now.
  // The cost doesn't depend on how many effects wait.
  std::vector<Effect> Add(std::vector<Effect> effects);
  // Returns the next effect, if one can be carried out. For a Persist the caller takes the record
  // now; it serves all later Persists that wait, and Take() returns nothing until EndWriting().
  std::optional<Effect> Take();
  // The record is written, or can't be. Returns the effects that waited for the first record and
  // overtake those that wait for the next one, to be carried out now.
  std::vector<Effect> EndWriting();

  bool writing() const { return writing_; }
  // The effects that are still to be carried out.
  const std::deque<Effect>& waiting() const { return waiting_; }

 private:
  std::deque<Effect> waiting_;
  std::set<StreamKey> unwelcomed_;  // streams whose Welcome is in waiting_
  bool writing_ = false;
  bool recorded_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_
