#ifndef DDPRUN_TOOLS_DOCTOR_MACHINE_JSON_H_
#define DDPRUN_TOOLS_DOCTOR_MACHINE_JSON_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/core/hardware_advice.h"
#include "tools/doctor/core/machine_facts.h"
#include "tools/doctor/core/machine_findings.h"

namespace ddprun::launcher {

// The reports for programs: one JSON object, indented, with a newline at its end. Keys and units
// are in docs/ENV.md; null = not known.
std::string EnvJson(const MachineFacts& facts, const std::optional<HardwareAdvice>& advice);
std::string DoctorJson(const MachineFacts& facts, const std::vector<Finding>& findings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_MACHINE_JSON_H_
