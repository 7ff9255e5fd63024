#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_TEXT_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/core/hardware_advice.h"
#include "tools/doctor/core/machine_facts.h"
#include "tools/doctor/core/machine_findings.h"

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

// For people. Pure; each report ends with a newline.

// The report of `ddprun env`: one paragraph for each part of the machine, then the advice.
std::string EnvText(const MachineFacts& facts, const std::optional<HardwareAdvice>& advice,
                    const AdviceQuestion& question);

// The report of `ddprun doctor`: each finding with its effect and the commands that fix it, then a
// summary.
std::string DoctorText(const MachineFacts& facts, const std::vector<Finding>& findings);

// The same for several machines, with the machines' names after each finding. `differences`: their
// ComparisonText(); "" = not known.
std::string NodesDoctorText(const std::vector<MachineFindings>& machines,
                            const std::string& differences);

// kDebuggingHints, for `ddprun doctor --help`.
std::string DebuggingHintsText();

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_TEXT_H_
