#ifndef DDPRUN_TESTS_SIM_DECISION_WATCH_H_
#define DDPRUN_TESTS_SIM_DECISION_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::sim {

// R1, R10: all services of one job send the same decisions: for each generation one assignment of
// each rank and one stop step, and one verdict. Returns what is wrong, "" = nothing.
class DecisionWatch {
 public:
  // A service sends this message to an agent. Params: node: the agent's node id.
  std::string OnTold(const std::string& node, const rendezvous::ServiceMessage& message);

 private:
  struct Seat {
    rendezvous::Assignment assignment;
    std::string node;
  };

  std::string OnAssignment(const std::string& node, const rendezvous::Assignment& assignment);

  std::map<std::pair<rendezvous::Generation, uint32_t>, Seat> seats_;  // by group rank
  std::map<rendezvous::Generation, uint64_t> stop_steps_;
  std::optional<std::pair<rendezvous::Outcome, rendezvous::Generation>> verdict_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_DECISION_WATCH_H_
