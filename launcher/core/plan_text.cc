#include "launcher/core/plan_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

std::string BindingText(const LaunchPlan& plan) {
  if (plan.worker_cpus.empty()) return "not bound";
  std::vector<std::string> workers;
  for (size_t rank = 0; rank < plan.worker_cpus.size(); ++rank) {
    workers.push_back(absl::StrCat(rank, " to ", CpuSetText(plan.worker_cpus[rank])));
  }
  return absl::StrJoin(workers, "; ");
}

}  // namespace

std::string PlanText(const LaunchPlan& plan) {
  const rendezvous::JobSpec& job = plan.job;
  const EndpointPlan& endpoint = plan.endpoint;
  const bool local = endpoint.kind == EndpointPlan::Kind::kUnix;
  const std::string where =
      local ? "a unix socket of this node" : absl::StrCat(endpoint.host, ":", endpoint.port);
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"entrypoint", plan.entry_point},
      {"min_nodes", absl::StrCat(job.nodes_min)},
      {"max_nodes", absl::StrCat(job.nodes_max)},
      {"nproc_per_node", absl::StrCat(plan.worker_count)},
      {"run_id", job.run_id},
      {"rdzv_backend", plan.rdzv_backend},
      {"rdzv_endpoint", where},
      {"rdzv_configs",
       absl::StrCat("join_timeout=", absl::FormatDuration(job.join_timeout),
                    ", last_call_timeout=", absl::FormatDuration(job.last_call_timeout))},
      {"max_restarts", absl::StrCat(job.max_restarts)},
      {"log_dir", plan.output.log_dir.empty() ? "none given" : plan.output.log_dir},
      {"event_log_handler", plan.events_on_console ? "console" : "null"},
      {"signals_to_handle", plan.signals.text},
      {"role", plan.role},
      {"numa_binding", NumaBindingName(plan.numa_binding)},
      {"cpu_binding", CpuBindingName(plan.cpu_binding)},
      {"workers' CPUs", BindingText(plan)},
      {"grace", absl::FormatDuration(job.stop_grace)},
      {"lease", absl::FormatDuration(job.lease)},
      {"service_loss_timeout",
       absl::StrCat(absl::FormatDuration(plan.service.loss), ", without workers ",
                    absl::FormatDuration(plan.service.loss_without_workers))},
      {"state_dir", plan.state_dir.empty() ? "none given" : plan.state_dir},
      {"isolation_timeout", absl::FormatDuration(plan.isolation_timeout)},
  };
  std::string text = "this run:";
  for (const auto& [name, value] : settings) {
    absl::StrAppendFormat(&text, "\n  %-20s : %s", name, value);
  }
  return text;
}

}  // namespace ddprun::launcher
