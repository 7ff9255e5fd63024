#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_

#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/core/events.h"

namespace ddprun::rendezvous {

// The effects of a job in the order in which they are carried out: what follows a Persist waits
// until the record is written (R10). But nobody loses a lease for that: probes that measure one
// overtake what waits, and so does a Welcome, which tells of nothing that was decided; only the
// first record of a job, which has the term that a Welcome tells, holds it back. Pure.
class EffectQueue {
 public:
  // Params: recorded: there is a record of the job.
  explicit EffectQueue(bool recorded = false) : recorded_(recorded) {}

  // Adds the effects of one step. Returns: those that overtake the others, to be carried out now.
  // What waits already costs nothing: of many nodes it is much, and many steps come meanwhile.
  std::vector<Effect> Add(std::vector<Effect> effects);
  // The next one, if one can be carried out. A Persist: the record is to be taken now, it holds for
  // all later Persists that wait, and nothing comes before EndWriting.
  std::optional<Effect> Take();
  // The record is written, or can't be. Returns: what has waited for the first one, and overtakes
  // what waits for the next, to be carried out now.
  std::vector<Effect> EndWriting();

  bool writing() const { return writing_; }
  // What is yet to be carried out.
  const std::deque<Effect>& waiting() const { return waiting_; }

 private:
  std::deque<Effect> waiting_;
  std::set<StreamKey> unwelcomed_;  // streams whose Welcome is in waiting_
  bool writing_ = false;
  bool recorded_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_EFFECT_QUEUE_H_
