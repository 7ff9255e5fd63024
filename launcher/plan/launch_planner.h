#ifndef DDPRUN_LAUNCHER_PLAN_LAUNCH_PLANNER_H_
#define DDPRUN_LAUNCHER_PLAN_LAUNCH_PLANNER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Checks the arguments, fills in defaults, and decides where the rendezvous is:
//
//   --standalone                                  a unix socket, fresh run id
//   static (default), one node, no endpoint       a unix socket
//   static, more nodes                            endpoint, else master_addr:master_port; node rank
//                                                 0 hosts, every node claims its rank
//   c10d, or an endpoint alone                    endpoint, else localhost:29400; the owner of its
//                                                 address hosts; a rank is claimed only when given
//
// A unix socket takes no port, so two jobs of one node never collide, and no other user reaches it.
//
// Errors: usage and plan errors (argument.h). `warnings` gets lines for the user.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchArguments& arguments,
                                          const EnvironmentLookup& environment, const Host& host,
                                          std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_LAUNCH_PLANNER_H_
