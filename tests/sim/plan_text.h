#ifndef DDPRUN_TESTS_SIM_PLAN_TEXT_H_
#define DDPRUN_TESTS_SIM_PLAN_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tests/sim/fault_plan.h"

// A run as a script that people read, and that can be run again (cluster_sim_test --plan FILE):
//
//   seed 42              the job and its nodes
//   chance 123 calm      delays and lives; calm: messages take 1 ms
//   absent n2            never comes
//   at 12.345s n1 cut lasts 2.5s detail 2  # n1: is cut for 2.5s
namespace ddprun::sim {

struct SavedRun {
  uint64_t seed = 0;
  FaultPlan plan;
};

std::string ToText(const SavedRun& run);
// Errors: INVALID_ARGUMENT: the text quotes the line that can't be read.
absl::StatusOr<SavedRun> FromText(const std::string& text);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_PLAN_TEXT_H_
