#ifndef DDPRUN_TOOLS_CHAOS_CORE_CHAOS_TEXT_H_
#define DDPRUN_TOOLS_CHAOS_CORE_CHAOS_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// A fault of a plan in one line: "worker_killed by SIGKILL, worker 1, at step 100".
std::string DescribeFault(const FaultPlan& fault);

// The report for people: a table of the faults, other ends of generations, faults that weren't
// injected and why that matters, the sum, and the verdict on the expectations. Params: plan_name —
// of the file. not_here — indices in the plan of faults without an injection in these lines.
// Returns: whole lines of at most 120 columns, except for texts of the job. Pure.
std::string ChaosText(const ChaosReport& report, const ChaosPlan& plan,
                      const std::string& plan_name, const std::vector<size_t>& not_here);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CORE_CHAOS_TEXT_H_
