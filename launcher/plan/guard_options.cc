#include "launcher/plan/guard_options.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

// Below the 5 s that a node has beyond the grace (docs/PROTOCOL.md, R3).
constexpr absl::Duration kGpuMemoryWaitMax = absl::Seconds(4);

absl::Status PlanLeftovers(const Argument& argument, LeftoverPlan* plan) {
  if (argument.text == "kill") {
    plan->mode = LeftoverPlan::Mode::kKill;
  } else if (argument.text == "spare") {
    plan->mode = LeftoverPlan::Mode::kSpare;
  } else if (argument.text != "wait") {
    absl::string_view seconds = argument.text;
    if (!absl::ConsumePrefix(&seconds, "wait=")) {
      return BadWord(argument, "is none of kill, wait, wait=SECONDS and spare");
    }
    const Argument time{.text = std::string(seconds), .source = argument.source};
    DDPRUN_ASSIGN_OR_RETURN(plan->after_success, ParseDuration(time, absl::ZeroDuration()));
  }
  return absl::OkStatus();
}

}  // namespace

void DefineGuardOptions(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->cgroup,
                    {.names = "--cgroup",
                     .placeholder = "on|off",
                     .help = "on: put the workers into a cgroup of their own where this "
                             "user may make one (version 2, not under Slurm), which the "
                             "kernel kills at once when they must end."});
  options->AddValue(&target->leftovers,
                    {.names = "--leftovers",
                     .placeholder = "kill|wait|wait=SECONDS|spare",
                     .help = "What becomes of processes that workers leave behind (uploads, "
                             "resource trackers). wait: after success ddprun waits for them, up to "
                             "10 minutes or as many seconds; after anything else they have 10 "
                             "seconds, beside the restart; then they are killed. kill: they are "
                             "killed with their worker. spare: as wait, but after success they are "
                             "left running."});
  options->AddFlag(
      &target->in_process_restart,
      {.names = "--in-process-restart",
       .help = "When a worker is lost of a script that calls train() of Hugging Face's "
               "Trainer, or fit() of Lightning's, the others go on in their processes. The "
               "script needs no change; a line at the start says whether its training can "
               "be kept (docs/ELASTIC.md). Otherwise all workers are restarted, as without "
               "this option."});
  options->AddValue(&target->memory_checkpoints,
                    {.names = "--memory-checkpoints",
                     .placeholder = "SIZE|PERCENT",
                     .help = "How much memory this node keeps for checkpoints of its workers, "
                             "which outlive them (docs/ELASTIC.md), for instance 8GiB or 10%; 0: "
                             "none. Nothing is taken before a worker uses it.",
                     .default_text = "25% of the memory"});
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
  DDPRUN_RETURN_IF_ERROR(PlanLeftovers(arguments.leftovers, &plan->leftovers));
  plan->in_process_restart = arguments.in_process_restart;
  MemoryCheckpointPlan* memory = &plan->memory_checkpoints;
  if (const Argument& size = arguments.memory_checkpoints;
      size.filled() && !ReadMemorySize(size.text, &memory->bytes, &memory->percent)) {
    return BadValue(size, "is no size (8GiB, 512MiB) and no percentage (10%)");
  }
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

namespace {

constexpr int64_t kCountMax = std::numeric_limits<int32_t>::max();

absl::Status ReadCount(const Argument& argument, int64_t most, uint32_t* count) {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(argument, 0, most));
  *count = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanRestarts(const LaunchArguments& arguments, rendezvous::JobSpec* job) {
  rendezvous::RestartRules& rules = job->restart;
  // Python's numbers have no bound.
  DDPRUN_ASSIGN_OR_RETURN(
      const int64_t max_restarts,
      ParseInteger(arguments.max_restarts, 0, std::numeric_limits<int64_t>::max()));
  job->max_restarts = static_cast<uint32_t>(std::min(max_restarts, kCountMax));
  job->survivors_restart = !arguments.max_restarts.given() || job->max_restarts > 0;
  if (arguments.membership_changes.given()) {
    DDPRUN_RETURN_IF_ERROR(
        ReadCount(arguments.membership_changes, kCountMax, &rules.max_membership_changes));
  }
  DDPRUN_RETURN_IF_ERROR(ReadCount(arguments.crash_loop, kCountMax, &rules.crash_loop));
  DDPRUN_RETURN_IF_ERROR(ReadCount(arguments.give_up_after, kCountMax, &rules.give_up_after));
  DDPRUN_RETURN_IF_ERROR(
      ReadCount(arguments.quarantine_after, rendezvous::kBlameMax, &rules.quarantine_after));
  rules.quarantine_shrinks = arguments.quarantine_after.given();
  DDPRUN_ASSIGN_OR_RETURN(rules.restart_window,
                          ParseDuration(arguments.restart_window, absl::ZeroDuration()));
  DDPRUN_ASSIGN_OR_RETURN(rules.backoff_max,
                          ParseDuration(arguments.restart_backoff, absl::ZeroDuration()));
  DDPRUN_ASSIGN_OR_RETURN(rules.quarantine_time,
                          ParseDuration(arguments.quarantine_time, absl::Milliseconds(1)));
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
