#include "launcher/core/environment.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/line_collapser.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

bool DefaultsOmpThreads(const LaunchPlan& plan, const EnvironmentLookup& inherited) {
  return plan.worker_count > 1 && !plan.omp_threads.has_value() &&
         !inherited("OMP_NUM_THREADS").has_value();
}

std::vector<std::string> WorkerEnvironment(const LaunchPlan& plan,
                                           const rendezvous::Assignment& assignment,
                                           uint32_t local_rank, const EnvironmentLookup& inherited,
                                           const WorkerPaths& paths) {
  std::vector<std::string> environment;
  const auto set = [&environment](const char* name, const auto& value) {
    environment.push_back(absl::StrCat(name, "=", value));
  };
  // torchrun's shortcut around the exchange of roles: there is one role then.
  const bool identical = inherited("TORCH_ELASTIC_WORKER_IDENTICAL") == "1";
  const DevicePlan& devices = plan.devices;
  set("LOCAL_RANK", devices.virtual_local_rank ? 0 : local_rank);
  set("RANK", assignment.base_rank + local_rank);
  set("GROUP_RANK", assignment.group_rank);
  set("ROLE_RANK", (identical ? assignment.base_rank : assignment.base_role_rank) + local_rank);
  set("ROLE_NAME", plan.given_role.empty() ? plan.role : plan.given_role);
  set("LOCAL_WORLD_SIZE", plan.worker_count);
  set("WORLD_SIZE", assignment.world_size);
  set("GROUP_WORLD_SIZE", assignment.group_world_size);
  set("ROLE_WORLD_SIZE", identical ? assignment.world_size : assignment.role_world_size);
  if (devices.virtual_local_rank) {
    const std::string own = local_rank < devices.visible.size() ? devices.visible[local_rank]
                                                                : absl::StrCat(local_rank);
    set("CUDA_VISIBLE_DEVICES", own);
    if (!inherited("HIP_VISIBLE_DEVICES").value_or("").empty()) set("HIP_VISIBLE_DEVICES", own);
  } else if (!devices.visible.empty()) {
    set("CUDA_VISIBLE_DEVICES", absl::StrJoin(devices.visible, ","));
  }
  set("MASTER_ADDR", assignment.master_addr);
  set("MASTER_PORT", assignment.master_port);
  set("TORCHELASTIC_RESTART_COUNT", assignment.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", plan.job.max_restarts);
  set("TORCHELASTIC_RUN_ID", plan.given_run_id.empty() ? plan.job.run_id : plan.given_run_id);
  // torch compares with exactly this word: every worker is a client of the store, rank 0 too (R11).
  set("TORCHELASTIC_USE_AGENT_STORE", plan.agent_store ? "True" : "False");
  set("TORCHELASTIC_ERROR_FILE", paths.error_file);
  if (!paths.timer_file.empty()) set("TORCHELASTIC_TIMER_FILE", paths.timer_file);
  // For information: torch's side in the worker only reads the variable.
  set("TORCHELASTIC_SIGNALS_TO_HANDLE", plan.signals.text);
  set("TORCH_NCCL_ASYNC_ERROR_HANDLING",
      inherited("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1"));
  if (local_rank < plan.worker_omp_threads.size()) {
    set("OMP_NUM_THREADS", plan.worker_omp_threads[local_rank]);
  } else if (plan.omp_threads.has_value()) {
    set("OMP_NUM_THREADS", *plan.omp_threads);
  } else if (DefaultsOmpThreads(plan, inherited)) {
    set("OMP_NUM_THREADS", 1);
  }
  if (plan.deepspeed) {  // what deepspeed/launcher/launch.py sets beside torchrun's
    set("CROSS_RANK", assignment.group_rank);
    set("CROSS_SIZE", assignment.group_world_size);
    set("LOCAL_SIZE", plan.worker_count);
  }
  set("DDPRUN_GENERATION", assignment.generation.value());
  set("DDPRUN_AGENT", paths.agent_socket);
  if (!paths.progress_page.empty()) set("DDPRUN_PROGRESS", paths.progress_page);
  if (!paths.finish_barrier.empty()) set("DDPRUN_FINISH_BARRIER", paths.finish_barrier);
  for (const auto& [name, value] : plan.extra_environment) {
    const std::string begin = absl::StrCat(name, "=");
    const bool is_set =
        std::any_of(environment.begin(), environment.end(),
                    [&begin](const std::string& entry) { return absl::StartsWith(entry, begin); });
    if (!is_set && !inherited(name).has_value()) set(name.c_str(), value);
  }
  return environment;
}

std::vector<std::string> VaryingVariables(const LaunchPlan& plan) {
  std::vector<std::string> names = {
      "LOCAL_RANK",      "RANK",
      "GROUP_RANK",      "ROLE_RANK",
      "WORLD_SIZE",      "GROUP_WORLD_SIZE",
      "ROLE_WORLD_SIZE", "MASTER_ADDR",
      "MASTER_PORT",     "TORCHELASTIC_RESTART_COUNT",
      "CROSS_RANK",      "TORCHELASTIC_ERROR_FILE",
      "CROSS_SIZE",      "TORCHELASTIC_TIMER_FILE",
      "DDPRUN_AGENT",    "DDPRUN_GENERATION",
      "DDPRUN_PROGRESS", "DDPRUN_FINISH_BARRIER",
  };
  if (plan.devices.virtual_local_rank) {
    names.emplace_back("CUDA_VISIBLE_DEVICES");
    names.emplace_back("HIP_VISIBLE_DEVICES");
  }
  if (!plan.worker_omp_threads.empty()) names.emplace_back("OMP_NUM_THREADS");
  return names;
}

std::string UserFolder(const EnvironmentLookup& environment, const char* variable,
                       const char* below_home) {
  std::string folder = environment(variable).value_or("");
  if (!folder.empty() && folder.front() == '/') return folder;
  const std::string home = environment("HOME").value_or("");
  return home.empty() || home.front() != '/' ? "" : absl::StrCat(home, "/", below_home);
}

std::vector<std::string> CommonEnvironment(const LaunchPlan& plan,
                                           const EnvironmentLookup& inherited) {
  const std::vector<std::string> varying = VaryingVariables(plan);
  std::vector<std::string> environment = WorkerEnvironment(plan, {}, 0, inherited, {});
  std::erase_if(environment, [&varying](const std::string& variable) {
    const std::string name = variable.substr(0, variable.find('='));
    return std::find(varying.begin(), varying.end(), name) != varying.end();
  });
  return environment;
}

std::vector<std::string> WorkerArguments(const LaunchPlan& plan, uint32_t local_rank) {
  std::vector<std::string> arguments = plan.argv;
  for (size_t i = 1; i < arguments.size(); ++i) {
    arguments[i] = Substitute(arguments[i], {{"local_rank", absl::StrCat(local_rank)}});
  }
  return arguments;
}

std::string ConsolePrefix(const LaunchPlan& plan, const std::string& host,
                          const rendezvous::Assignment& assignment,
                          const std::vector<uint32_t>& local_ranks) {
  std::vector<uint32_t> ranks;
  ranks.reserve(local_ranks.size());
  for (const uint32_t local_rank : local_ranks) ranks.push_back(assignment.base_rank + local_rank);
  return Substitute(plan.output.prefix_template,
                    {{"role_name", plan.role},
                     {"rank", RankRanges(ranks)},
                     {"local_rank", RankRanges(local_ranks)},
                     {"group_rank", absl::StrCat(assignment.group_rank)},
                     {"host", host},
                     {"hostname", host.substr(0, host.find('.'))}});
}

}  // namespace ddprun::launcher
