#ifndef DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_
#define DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {

class OptionSet;

// The arguments of `ddprun [options] script …` as given; launch_planner.h makes a plan of them. The
// texts here are the defaults, taken from the plan's where it has one; --help prints them.
struct LaunchArguments {
  // The size of the job.
  Argument nnodes{.text = absl::StrCat(rendezvous::JobSpec().nodes_max)};
  Argument nproc_per_node{.text = absl::StrCat(LaunchPlan().worker_count)};
  Argument node_rank{.text = "0"};
  bool standalone = false;
  bool no_slurm = false;
  bool no_kubernetes = false;
  bool preflight = false;

  // The rendezvous.
  Argument master_addr;
  Argument master_port;
  Argument rdzv_backend{.text = LaunchPlan().rdzv_backend};
  Argument rdzv_endpoint;
  Argument rdzv_id{.text = "none"};
  Argument rdzv_conf;
  Argument local_addr;
  Argument service_port{.text = "0"};
  Argument token;
  Argument token_file;
  Argument tls_dir;

  // The workers.
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  bool use_env = true;
  Argument role{.text = LaunchPlan().role};
  Argument start_method{.text = "spawn"};
  bool virtual_local_rank = false;
  bool in_process_restart = false;
  bool debug = false;
  Argument numa_binding;
  Argument cpu_binding{.text = "none"};
  bool binding_fallback = false;
  Argument omp_threads;

  // The workers' output.
  Argument log_dir;
  Argument redirects{.text = "0"};
  Argument tee{.text = "0"};
  bool prefix_output = false;
  Argument prefix_template;
  bool collapse_output = false;
  Argument local_ranks_filter;
  Argument duplicate_stdout_filters;
  Argument duplicate_stderr_filters;
  Argument logs_specs;
  Argument event_log;
  Argument status_page;
  Argument status_page_token_file;
  Argument event_log_handler{.text = "null"};
  Argument report_file;

  // Recovery and the end.
  Argument max_restarts{.text = absl::StrCat(rendezvous::JobSpec().max_restarts)};
  Argument membership_changes;
  Argument restart_window{.text = DurationText(rendezvous::RestartRules().restart_window)};
  Argument restart_backoff{.text = DurationText(rendezvous::RestartRules().backoff_max)};
  Argument crash_loop{.text = absl::StrCat(rendezvous::RestartRules().crash_loop)};
  Argument give_up_after{.text = absl::StrCat(rendezvous::RestartRules().give_up_after)};
  Argument quarantine_after{.text = absl::StrCat(rendezvous::RestartRules().quarantine_after)};
  Argument quarantine_time{.text = DurationText(rendezvous::RestartRules().quarantine_time)};
  Argument grace{.text = DurationText(rendezvous::JobSpec().stop_grace)};
  Argument shutdown_timeout{.text = DurationText(rendezvous::JobSpec().stop_grace)};
  Argument exit_barrier_timeout;
  Argument signals_to_handle{.text = SignalPlan().text};
  Argument preempt_signals;
  Argument preempt_deadline;
  Argument preempt_after;
  Argument lease{.text = DurationText(rendezvous::JobSpec().lease)};
  Argument reconnect_grace{.text = DurationText(rendezvous::JobSpec().reconnect_grace)};
  Argument state_dir;
  Argument service_loss_timeout{.text = DurationText(ServiceTimeouts().loss)};
  Argument isolation_timeout{.text = DurationText(LaunchPlan().isolation_timeout)};
  Argument cgroup{.text = "on"};
  Argument leftovers{.text = "wait"};
  Argument memory_checkpoints;
  Argument gpu_memory_wait{.text = DurationText(LaunchPlan().gpu_memory_wait)};
  Argument warm{.text = "on"};
  Argument warm_memory;
  Argument preload;
  Argument exit_code{.text = "1"};
  Argument mark{.text = "auto"};
  Argument hang_detection{.text = "on"};
  Argument first_step_timeout{.text = DurationText(HangSettings().first_step_timeout)};
  Argument hang_timeout;
  Argument on_hang{.text = "restart"};
  Argument on_stopped{.text = "warn"};
  Argument monitor_interval{.text = "0.1"};

  Argument config;
  bool version = false;
  Argument print_completion;
  std::vector<std::string> command;  // script (module, program) and its arguments
  // From Slurm (slurm_defaults.h): CPUs of this node that the job may use; nullopt = all.
  std::optional<uint32_t> cpus_max;
  // From Slurm or Kubernetes: whether this node hosts the service; nullopt = decided by the
  // endpoint's address.
  std::optional<bool> hosts_service;
  // From the file of --config: for workers, unless the user's environment has the name.
  std::vector<std::pair<std::string, std::string>> worker_environment;
};

// Defines all options except --config, with their help. `target` must outlive `options`.
void DefineLaunchOptions(LaunchArguments* target, OptionSet* options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_
