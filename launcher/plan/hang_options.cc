#include "launcher/plan/plan_parts.h"

#include "base/status_macros.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kTimeoutLeast = absl::Milliseconds(500);

}  // namespace

void DefineHangOptions(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->mark,
                    {.names = "--mark",
                     .placeholder = "auto|off",
                     .help = "auto: count the optimizer steps of scripts in Python that don't mark "
                             "their progress themselves, for ddprun status, its page and the "
                             "account of where the time went, and name a rank that the others "
                             "wait for in a collective (docs/PROGRESS.md); off: do neither."});
  options->AddValue(&target->hang_detection,
                    {.names = "--hang-detection",
                     .placeholder = "on|off",
                     .help = "Watch workers that mark their progress (docs/PROGRESS.md): "
                             "limits are learned from their own steps."});
  options->AddValue(&target->first_step_timeout,
                    {.names = "--first-step-timeout",
                     .placeholder = "SECONDS",
                     .help = "The limit of a phase of such a worker before 100 of its steps "
                             "are known: start, first step, checkpoint, evaluation."});
  options->AddValue(&target->hang_timeout,
                    {.names = "--hang-timeout",
                     .placeholder = "SECONDS",
                     .help = "End a worker that has held up the others for so long without "
                             "progress. Given explicitly, also end one that neither reads nor "
                             "writes a byte nor uses the processor for so long, whether others "
                             "wait for it or not. What provably can't go on ends sooner.",
                     .default_text = "600, or the time-out of the script's process group if that "
                                     "is longer"});
  options->AddValue(&target->on_hang,
                    {.names = "--on-hang",
                     .placeholder = "restart|report",
                     .help = "restart: a worker that provably can't go on, or has held up the "
                             "others for --hang_timeout, counts as failed; report: it is "
                             "named and left alone."});
  options->AddValue(&target->on_stopped,
                    {.names = "--on-stopped",
                     .placeholder = "warn|restart",
                     .help = "A worker that a signal stops (SIGSTOP). warn: say so, and "
                             "leave it to the watch above; restart: it counts as failed at "
                             "once."});
}

absl::Status PlanHangs(const LaunchArguments& arguments, LaunchPlan* plan) {
  const std::string& mark = arguments.mark.text;
  if (mark != "auto" && mark != "off") return BadWord(arguments.mark, "is neither auto nor off");
  plan->count_steps = mark == "auto";
  const std::string& detection = arguments.hang_detection.text;
  if (detection != "on" && detection != "off") {
    return BadWord(arguments.hang_detection, "is neither on nor off");
  }
  plan->hangs.watch_marks = detection == "on";
  DDPRUN_ASSIGN_OR_RETURN(plan->hangs.first_step_timeout,
                          ParseDuration(arguments.first_step_timeout, kTimeoutLeast));
  if (arguments.hang_timeout.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(plan->hangs.hang_timeout,
                            ParseDuration(arguments.hang_timeout, kTimeoutLeast));
    plan->hangs.end_after = plan->hangs.hang_timeout;
  }
  const std::string& on_hang = arguments.on_hang.text;
  if (on_hang != "restart" && on_hang != "report") {
    return BadWord(arguments.on_hang, "is neither restart nor report");
  }
  plan->on_hang = on_hang == "report" ? OnHang::kReport : OnHang::kRestart;
  const std::string& on_stopped = arguments.on_stopped.text;
  if (on_stopped != "warn" && on_stopped != "restart") {
    return BadWord(arguments.on_stopped, "is neither warn nor restart");
  }
  plan->restart_stopped = on_stopped == "restart";
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
