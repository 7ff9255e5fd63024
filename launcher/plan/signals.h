#ifndef DDPRUN_LAUNCHER_PLAN_SIGNALS_H_
#define DDPRUN_LAUNCHER_PLAN_SIGNALS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/core/launch_plan.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// The number of a signal: "SIGTERM", "TERM", "term" or "15". nullopt: none of this machine's
// standard signals. Threads: any.
std::optional<int> ReadSignal(absl::string_view text);

// Reads --signals_to_handle, --preempt_signals, --preempt_after and --preempt_deadline, whose
// default is `grace`.
//
// What can't be handled in --signals_to_handle gets a warning and is left out, as torchrun does;
// --preempt_signals is ours, and a mistake in it an error. A signal of both means preemption when
// --signals_to_handle was not given, else it is an error.
// Errors: plan errors.
absl::StatusOr<SignalPlan> PlanSignals(const LaunchArguments& arguments, absl::Duration grace,
                                       std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_SIGNALS_H_
