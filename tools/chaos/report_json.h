#ifndef DDPRUN_TOOLS_CHAOS_REPORT_JSON_H_
#define DDPRUN_TOOLS_CHAOS_REPORT_JSON_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// The report of --chaos_report, as docs/CHAOS.md lists its fields: one JSON object, indented, with
// a newline at its end. Params as of ChaosText(). Threads: any.
std::string ChaosJson(const ChaosReport& report, const ChaosPlan& plan,
                      const std::vector<size_t>& not_here);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_REPORT_JSON_H_
