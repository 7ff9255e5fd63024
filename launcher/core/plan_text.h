#ifndef DDPRUN_LAUNCHER_CORE_PLAN_TEXT_H_
#define DDPRUN_LAUNCHER_CORE_PLAN_TEXT_H_

#include <string>

#include "launcher/core/launch_plan.h"

namespace ddprun::launcher {

// What LOGLEVEL=INFO shows of a run before it begins: torchrun's list of settings with its names,
// and ours behind them, one a line. Secrets are not in it. Pure.
std::string PlanText(const LaunchPlan& plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_PLAN_TEXT_H_
