#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_DIFFERENCES_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_DIFFERENCES_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// The differences between the machines of a job. Pure; threads: any.

// One property to compare.
struct MachineTrait {
  std::string name;      // "torch"
  std::string value;     // for people; equal if and only if the texts are
  bool serious = false;  // nodes that differ fail, or wait for the slowest
};

struct MachineSummary {
  std::string host;
  std::vector<MachineTrait> traits;  // the same names in the same order on all machines
};

struct MachineDifference {
  std::string name;
  bool serious = false;
  struct Side {
    std::string value;
    std::vector<std::string> hosts;
  };
  std::vector<Side> sides;  // the one with most hosts first, then in the order of the machines
};

// The serious ones first, otherwise in the order of the first machine's traits. A trait that a
// machine lacks is "unknown" there.
std::vector<MachineDifference> CompareMachines(const std::vector<MachineSummary>& machines);

// For people; ends with a newline.
std::string ComparisonText(const std::vector<MachineSummary>& machines);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_DIFFERENCES_H_
