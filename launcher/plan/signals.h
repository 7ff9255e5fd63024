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

// The number of a signal: "SIGTERM", "TERM", "term" or "15". nullopt = not a standard signal of
// this machine. Threads: any.
std::optional<int> ReadSignal(absl::string_view text);

// Reads --signals_to_handle, --preempt_signals, --preempt_after and --preempt_deadline. The last
// one's default is `grace`.
//
// A signal in --signals_to_handle that can't be handled gets a warning and is left out, as in
// torchrun.
// --preempt_signals isn't torchrun's, and a mistake in it is an error. A signal in both preempts if
// --signals_to_handle wasn't given; else it is an error.
// Errors: plan errors.
absl::StatusOr<SignalPlan> PlanSignals(const LaunchArguments& arguments, absl::Duration grace,
                                       std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_SIGNALS_H_
