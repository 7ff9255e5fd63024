#include "launcher/plan/guard_options.h"

#include "base/status_macros.h"
#include "launcher/options/errors.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

// Below the 5 s that a node has beyond the grace (docs/PROTOCOL.md, R3).
constexpr absl::Duration kGpuMemoryWaitMax = absl::Seconds(4);

}  // namespace

void DefineGuardOptions(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->cgroup,
                    {.names = "--cgroup",
                     .placeholder = "on|off",
                     .help = "on: put the workers into a cgroup of their own where this "
                             "user may make one (version 2, not under Slurm), which the "
                             "kernel kills at once when they must end."});
  options->AddValue(&target->gpu_memory_wait,
                    {.names = "--gpu-memory-wait",
                     .placeholder = "SECONDS",
                     .help = "How long a restart waits, where NVIDIA's driver is, for it to "
                             "have the ended workers' memory back; at most 4, 0: not at all."});
}

absl::Status PlanGuards(const LaunchArguments& arguments, LaunchPlan* plan) {
  if (const std::string& cgroup = arguments.cgroup.text; cgroup != "on" && cgroup != "off") {
    return BadWord(arguments.cgroup, "is neither on nor off");
  }
  plan->use_cgroup = arguments.cgroup.text == "on";
  DDPRUN_ASSIGN_OR_RETURN(plan->gpu_memory_wait,
                          ParseDuration(arguments.gpu_memory_wait, absl::ZeroDuration()));
  if (plan->gpu_memory_wait > kGpuMemoryWaitMax) {
    return BadValue(
        arguments.gpu_memory_wait,
        "must not be longer than 4s, because a node that takes 5s longer than the grace "
        "counts as lost");
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
