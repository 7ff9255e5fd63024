#ifndef DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_
#define DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/argument.h"

namespace ddprun::launcher {

class OptionSet;

// What `ddprun [options] script …` was given, word by word; launch_planner.h makes a plan of it.
// The texts here are the defaults.
struct LaunchArguments {
  // Job size
  Argument nnodes{.text = "1", .source = ""};
  Argument nproc_per_node{.text = "1", .source = ""};
  Argument node_rank{.text = "0", .source = ""};
  bool standalone = false;
  bool no_slurm = false;
  bool no_kubernetes = false;
  bool preflight = false;

  // Rendezvous
  Argument master_addr;
  Argument master_port;
  Argument rdzv_backend{.text = "static", .source = ""};
  Argument rdzv_endpoint;
  Argument rdzv_id{.text = "none", .source = ""};
  Argument rdzv_conf;
  Argument local_addr;
  Argument token;
  Argument token_file;

  // Workers
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  bool use_env = true;
  Argument role{.text = "default", .source = ""};
  Argument start_method{.text = "spawn", .source = ""};
  bool virtual_local_rank = false;
  bool debug = false;
  Argument numa_binding;
  Argument cpu_binding{.text = "none", .source = ""};
  bool binding_fallback = false;
  Argument omp_threads;

  // Output
  Argument log_dir;
  Argument redirects{.text = "0", .source = ""};
  Argument tee{.text = "0", .source = ""};
  bool prefix_output = false;
  Argument prefix_template;
  bool collapse_output = false;
  Argument local_ranks_filter;
  Argument duplicate_stdout_filters;
  Argument duplicate_stderr_filters;
  Argument logs_specs;
  Argument event_log;
  Argument status_page;
  Argument event_log_handler{.text = "null", .source = ""};
  Argument report_file;

  // Recovery
  Argument max_restarts{.text = "0", .source = ""};
  Argument membership_changes{.text = "100", .source = ""};
  Argument restart_window{.text = "0", .source = ""};
  Argument restart_backoff{.text = "30", .source = ""};
  Argument crash_loop{.text = "4", .source = ""};
  Argument give_up_after{.text = "0", .source = ""};
  Argument quarantine_after{.text = "3", .source = ""};
  Argument quarantine_time{.text = "1h", .source = ""};
  Argument grace{.text = "30", .source = ""};
  Argument shutdown_timeout{.text = "30", .source = ""};
  Argument exit_barrier_timeout;
  Argument signals_to_handle{.text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", .source = ""};
  Argument preempt_signals;
  Argument preempt_deadline;
  Argument preempt_after;
  Argument lease{.text = "5", .source = ""};
  Argument reconnect_grace{.text = "0.15", .source = ""};
  Argument service_loss_timeout;
  Argument isolation_timeout{.text = "120", .source = ""};
  Argument cgroup{.text = "on", .source = ""};
  Argument gpu_memory_wait{.text = "3", .source = ""};
  Argument exit_code{.text = "1", .source = ""};
  Argument hang_detection{.text = "on", .source = ""};
  Argument first_step_timeout{.text = "600", .source = ""};
  Argument hang_timeout;
  Argument on_hang{.text = "restart", .source = ""};
  Argument on_stopped{.text = "warn", .source = ""};
  Argument monitor_interval{.text = "0.1", .source = ""};

  Argument config;
  bool version = false;
  std::vector<std::string> command;  // script (module, program) and its arguments
  // From Slurm (slurm_defaults.h): CPUs of this node that the job may use; nullopt = all.
  std::optional<uint32_t> cpus_max;
  // From Slurm or Kubernetes: whether this node hosts the service; nullopt = as the endpoint's
  // address says.
  std::optional<bool> hosts_service;
  // From the file of --config: for workers, unless the user's environment has the name.
  std::vector<std::pair<std::string, std::string>> worker_environment;
};

// Defines all of them but config, with their help. `target` must outlive `options`.
void DefineLaunchOptions(LaunchArguments* target, OptionSet* options);

// What `ddprun --help` begins with.
std::string LaunchIntroduction();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_LAUNCH_ARGUMENTS_H_
