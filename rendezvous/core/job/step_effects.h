#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/members/node.h"

namespace ddprun::rendezvous {

// The effects of one step, in the order in which they happen. Equal messages to several nodes in a
// row share one message.
class StepEffects {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  // A node without a stream gets nothing now: it gets what it missed when it is back (R5).
  void SendTo(const Node& node, ServiceMessage message) {
    if (!node.stream) return;
    if (last_ == nullptr || *last_ != message) last_ = ShareMessage(std::move(message));
    SendTo(node, last_);
  }
  void SendTo(const Node& node, SharedMessage message) {
    if (node.stream) Put(Send{.stream = *node.stream, .message = std::move(message)});
  }
  void AddNote(std::string event, Fields fields) {
    Put(Note{.event = std::move(event), .fields = std::move(fields)});
  }
  void Put(Effect effect) { effects_.push_back(std::move(effect)); }
  // Puts an effect before all others.
  void PutFirst(Effect effect) { effects_.insert(effects_.begin(), std::move(effect)); }
  // The step is over. Returns its effects.
  std::vector<Effect> TakeAll() {
    last_.reset();
    return std::exchange(effects_, {});
  }
  bool empty() const { return effects_.empty(); }

 private:
  std::vector<Effect> effects_;  // empty between two steps
  SharedMessage last_;           // the latest message; null between two steps
};

// Limits notes about events that any peer can cause: a flood of them would displace the job's other
// events (R9). Allows kBurst notes at once, and one more for each kEvery that passes. Pure.
class NoteBudget {
 public:
  static constexpr uint32_t kBurst = 32;
  static constexpr absl::Duration kEvery = absl::Seconds(2);

  // Takes one note from the budget. Returns how many were suppressed since the last one, or
  // nullopt: this one is suppressed, too.
  std::optional<uint64_t> Take(Instant now);

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  uint32_t left_ = kBurst;  // at most kBurst
  Instant refilled_;        // <= now; at most kEvery ago when left_ < kBurst
  uint64_t left_out_ = 0;   // notes suppressed since the last one
};

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

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_
