#ifndef DDPRUN_TOOLS_DOCTOR_MACHINE_REPORTS_H_
#define DDPRUN_TOOLS_DOCTOR_MACHINE_REPORTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/doctor/core/hardware_advice.h"
#include "tools/doctor/core/machine_facts.h"
#include "tools/doctor/core/machine_findings.h"
#include "tools/doctor/core/machine_text.h"

namespace ddprun::launcher {

// The reports for programs: one JSON object, indented, with a newline at its end. Keys and units
// are in docs/ENV.md; null = not known.
std::string EnvJson(const MachineFacts& facts, const std::optional<HardwareAdvice>& advice);
std::string DoctorJson(const MachineFacts& facts, const std::vector<Finding>& findings);

// The properties to compare from a report of another node's `ddprun env --json`. Accepts any bytes:
// a missing field, or one of another type, is "unknown". Errors: INVALID_ARGUMENT — not a JSON
// object.
absl::StatusOr<MachineSummary> SummarizeReport(absl::string_view report);

// The findings of another node's `ddprun doctor --json`. Accepts any bytes, as above; an unknown
// severity counts as an error. Errors: INVALID_ARGUMENT — not a JSON object.
absl::StatusOr<MachineFindings> ReadFindings(absl::string_view report);

// {"nodes": [the reports], "differences": […]}, indented, with a newline at its end. Reports that
// aren't JSON are left out.
std::string ComparisonJson(const std::vector<std::string>& reports,
                           const std::vector<MachineSummary>& machines);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_MACHINE_REPORTS_H_
