#include "launcher/plan/plan_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/core/cpu_binding.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

absl::StatusOr<NumaBinding> ParseNumaBinding(const Argument& argument) {
  if (!argument.given()) return NumaBinding::kNone;
  if (argument.text == "node") return NumaBinding::kNode;
  if (argument.text == "socket") return NumaBinding::kSocket;
  if (argument.text == "exclusive") return NumaBinding::kExclusive;
  if (argument.text == "core-complex") return NumaBinding::kCoreComplex;
  return BadWord(argument, "give node, socket, exclusive or core-complex");
}

absl::StatusOr<CpuBinding> ParseCpuBinding(const Argument& argument) {
  if (!argument.filled() || argument.text == "none") return CpuBinding::kNone;
  if (argument.text == "cores") return CpuBinding::kCores;
  if (argument.text == "numa") return CpuBinding::kNuma;
  return BadWord(argument, "give cores, numa or none");
}

// The workers' CUDA_VISIBLE_DEVICES; nullopt = not set.
std::optional<std::vector<std::string>> Visible(const LaunchPlan& plan,
                                                const EnvironmentLookup& environment) {
  if (!plan.devices.visible.empty()) return plan.devices.visible;
  std::vector<std::string> devices = InheritedDevices(environment);
  if (devices.empty()) {
    devices = InheritedDevices([&plan](const std::string& name) -> std::optional<std::string> {
      for (const auto& [other, value] : plan.extra_environment) {
        if (other == name) return value;
      }
      return std::nullopt;
    });
  }
  if (devices.empty()) return std::nullopt;
  return devices;
}

bool OfOneModel(const std::vector<GpuPlace>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(),
                     [&gpus](const GpuPlace& gpu) { return gpu.model == gpus.front().model; });
}

absl::StatusOr<std::vector<CpuSet>> NearGpus(const EnvironmentLookup& environment,
                                             const CpuTopology& topology, const Host& host,
                                             const LaunchPlan& plan,
                                             std::vector<std::string>* warnings) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<GpuPlace> gpus, host.Gpus(Visible(plan, environment)));
  if (!OfOneModel(gpus) && environment("CUDA_DEVICE_ORDER") != "PCI_BUS_ID") {
    warnings->push_back(
        "--numa_binding counts GPUs by PCI id, but these are of different models, which CUDA "
        "counts by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID");
  }
  return PlanNumaBinding(plan.numa_binding, topology, gpus, plan.worker_count);
}

// No more than the cgroup's share of CPU time, which CpuCount() knows of.
std::vector<uint32_t> OmpThreads(const CpuTopology& topology, const Host& host,
                                 const std::vector<CpuSet>& worker_cpus) {
  std::vector<uint32_t> threads = ThreadsForCores(topology, worker_cpus);
  const uint32_t usable = host.CpuCount();
  if (usable >= topology.allowed.size()) return threads;
  const uint32_t share = std::max(1U, usable / static_cast<uint32_t>(worker_cpus.size()));
  for (uint32_t& count : threads) count = std::min(count, share);
  return threads;
}

}  // namespace

absl::Status PlanBinding(const LaunchArguments& arguments, LaunchPlan* plan) {
  DDPRUN_ASSIGN_OR_RETURN(plan->numa_binding, ParseNumaBinding(arguments.numa_binding));
  DDPRUN_ASSIGN_OR_RETURN(plan->cpu_binding, ParseCpuBinding(arguments.cpu_binding));
  if (plan->numa_binding != NumaBinding::kNone && plan->cpu_binding != CpuBinding::kNone) {
    return BadValue(arguments.cpu_binding, absl::StrCat(arguments.numa_binding.source,
                                                        " binds the workers already; give one of "
                                                        "them"));
  }
  return absl::OkStatus();
}

absl::Status BindWorkers(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan, std::vector<std::string>* warnings) {
  const bool by_gpu = plan->numa_binding != NumaBinding::kNone;
  if (!by_gpu && plan->cpu_binding == CpuBinding::kNone) return absl::OkStatus();
  const auto bind = [&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const CpuTopology topology, host.Topology());
    DDPRUN_ASSIGN_OR_RETURN(plan->worker_cpus,
                            by_gpu
                                ? NearGpus(environment, topology, host, *plan, warnings)
                                : PlanCpuBinding(plan->cpu_binding, topology, plan->worker_count));
    if (arguments.omp_threads.text == "auto") {
      plan->worker_omp_threads = OmpThreads(topology, host, plan->worker_cpus);
    }
    return absl::OkStatus();
  };
  absl::Status done = bind();
  if (done.ok()) return done;
  absl::Status error =
      BadValue(by_gpu ? arguments.numa_binding : arguments.cpu_binding, done.message());
  if (!arguments.binding_fallback) return error;
  warnings->push_back(absl::StrCat(error.message(), "; workers are not bound"));
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
