#ifndef DDPRUN_LAUNCHER_PLAN_PLAN_PARTS_H_
#define DDPRUN_LAUNCHER_PLAN_PLAN_PARTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Fills numa_binding and cpu_binding from their options.
// Errors: usage — not one of the choices; plan — both are given.
absl::Status PlanBinding(const LaunchArguments& arguments, LaunchPlan* plan);

// Fills worker_cpus, and worker_omp_threads for --omp_threads auto, from this machine's topology;
// probes nothing without a binding. Separate from PlanBinding, because a file of options is often
// written on another machine. With --binding_fallback a binding that isn't possible is a warning.
// Errors: plan — those of PlanNumaBinding, PlanCpuBinding and Host.
absl::Status BindWorkers(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan, std::vector<std::string>* warnings);

// The entries of CUDA_VISIBLE_DEVICES in its order; empty when it is not set, one empty entry when
// it is empty.
std::vector<std::string> InheritedDevices(const EnvironmentLookup& environment);

// Fills worker_count, devices and omp_threads from --nproc_per_node, --virtual_local_rank and
// --omp_threads.
//
// gpu:1,3,5-7 means one worker for each of these devices, counted as CUDA counts them: within
// CUDA_VISIBLE_DEVICES when that is set.
// Errors: usage — not a number; plan — numbers out of range, no or too few devices.
absl::Status PlanDevices(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan);

class OptionSet;

// The options about workers that hang or are stopped, with their help.
void DefineHangOptions(LaunchArguments* target, OptionSet* options);

// Fills `plan` from these options. Errors: INVALID_ARGUMENT — a value; the text names the option.
absl::Status PlanHangs(const LaunchArguments& arguments, LaunchPlan* plan);

// Fills the fields of `plan` for logs, the console, events and the report. Requires:
// plan->worker_count. Errors: plan errors. `warnings` gets lines for the user.
absl::Status PlanOutput(const LaunchArguments& arguments, const Host& host, LaunchPlan* plan,
                        std::vector<std::string>* warnings);

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

// The options about how workers start, with their help.
void DefineWarmOptions(LaunchArguments* target, OptionSet* options);

// Reads "5%", or "2GiB", "512MiB", "1048576" into memory_percent or memory_bytes. Returns false for
// other texts.
bool ReadMemory(absl::string_view text, WarmPlan* plan);

// Fills `plan` from these options. Errors: INVALID_ARGUMENT — a value; the text names the option.
// Requires: plan->argv, plan->entry_point.
absl::Status PlanWarm(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const Host& host, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_PLAN_PARTS_H_
