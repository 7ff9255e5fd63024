#ifndef DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_
#define DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_

#include "absl/status/status.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/plan/launch_arguments.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// Reads --rdzv_endpoint of --rdzv_backend etcd, the members of etcd, into `plan`. `configured`: the
// settings of --rdzv_conf. Errors: INVALID_ARGUMENT — a value; the text names the option. Pure;
// threads: any.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_ETCD_PLANNER_H_
