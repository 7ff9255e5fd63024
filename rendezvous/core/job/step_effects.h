#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_

#include <string>
#include <utility>
#include <vector>

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_STEP_EFFECTS_H_
