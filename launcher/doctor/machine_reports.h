#ifndef DDPRUN_LAUNCHER_DOCTOR_MACHINE_REPORTS_H_
#define DDPRUN_LAUNCHER_DOCTOR_MACHINE_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/doctor/core/machine_differences.h"
#include "launcher/doctor/core/machine_findings.h"

namespace ddprun::launcher {

// What is compared of a report that another node's `ddprun env --json` made. Any bytes are fine:
// what isn't there, or of another type, is "unknown".
// Errors: INVALID_ARGUMENT — it is no JSON object.
absl::StatusOr<MachineSummary> SummarizeReport(absl::string_view report);

// What another node's `ddprun doctor --json` found. Any bytes are fine, as above; a severity that
// is unknown is an error. Errors: INVALID_ARGUMENT — it is no JSON object.
absl::StatusOr<MachineFindings> ReadFindings(absl::string_view report);

// {"nodes": [the reports], "differences": […]}, indented, with a newline at its end. Reports that
// are no JSON are left out.
std::string ComparisonJson(const std::vector<std::string>& reports,
                           const std::vector<MachineSummary>& machines);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_MACHINE_REPORTS_H_
