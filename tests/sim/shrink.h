#ifndef DDPRUN_TESTS_SIM_SHRINK_H_
#define DDPRUN_TESTS_SIM_SHRINK_H_

#include <cstdint>
#include <string>

#include "tests/sim/cluster_sim.h"

namespace ddprun::sim {

// A run that breaks the same promise with fewer faults and nodes.
struct Shrunk {
  FaultPlan plan;
  size_t faults_before = 0;
  size_t nodes = 0;  // that come
  uint64_t runs = 0;
  std::string broken;    // what the small run says; "" = the seed breaks nothing
  std::string timeline;  // of the small run
};

// Leaves out faults, by halves and then one by one, and nodes, as long as a run still ends with the
// words of the same checker (numbers and names of nodes don't count). Each smaller plan is tried
// with several seeds for its noise, because an event that is gone shifts all later draws.
Shrunk Shrink(uint64_t seed, Sabotage sabotage);

// For people: what is left as a script (plan_text.h), then what happened.
std::string Describe(uint64_t seed, const Shrunk& shrunk);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SHRINK_H_
