#ifndef DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_
#define DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_

#include "absl/status/status.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/launch_arguments.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// Adds --service_port.
void DefineServicePort(LaunchArguments* target, OptionSet* options);

// Reads --rdzv_endpoint of --rdzv_backend etcd, the members of etcd, and --service_port into
// `plan`. `configured`: the settings of --rdzv_conf. Errors: INVALID_ARGUMENT — a value; the text
// names the option. Pure; threads: any.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_
