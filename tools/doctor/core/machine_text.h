#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_TEXT_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/core/hardware_advice.h"
#include "tools/doctor/core/machine_facts.h"
#include "tools/doctor/core/machine_findings.h"

namespace ddprun::launcher {

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
