#ifndef DDPRUN_RENDEZVOUS_CORE_OUTBOX_H_
#define DDPRUN_RENDEZVOUS_CORE_OUTBOX_H_

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/node.h"
#include "rendezvous/core/state_machine.h"

namespace ddprun::rendezvous {

// The effects of one step, in the order in which they are to happen.
class Outbox {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  // To a node without a stream nothing is sent: it hears what it missed when it is back (R5).
  void SendTo(const Node& node, ServiceMessage message) {
    if (node.stream) Put(Send{.stream = *node.stream, .message = std::move(message)});
  }
  void AddNote(std::string event, Fields fields) {
    Put(Note{.event = std::move(event), .fields = std::move(fields)});
  }
  void Put(Effect effect) { effects_.push_back(std::move(effect)); }
  // The step is over.
  std::vector<Effect> TakeAll() { return std::exchange(effects_, {}); }
  bool empty() const { return effects_.empty(); }

 private:
  std::vector<Effect> effects_;  // empty between two steps
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_OUTBOX_H_
