#include "launcher/plan/plan_parts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "launcher/plan/worker_command.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";
constexpr char kHipVisibleDevices[] = "HIP_VISIBLE_DEVICES";  // wins on ROCm
constexpr absl::string_view kGpuList = "gpu:";

std::vector<std::string> DevicesIn(const char* variable, const EnvironmentLookup& environment) {
  std::vector<std::string> entries;
  const std::optional<std::string> list = environment(variable);
  if (!list.has_value()) return entries;
  for (absl::string_view entry : absl::StrSplit(*list, ',')) {
    entries.emplace_back(absl::StripAsciiWhitespace(entry));
  }
  return entries;
}

absl::Status NoCuda(const Argument& argument) {
  return BadValue(argument,
                  "Cuda is not available: no CUDA device was found; give a number or cpu");
}

// Devices that torch knows by a module of its own.
bool IsTorchModule(absl::string_view word) {
  constexpr absl::string_view kModules[] = {"xpu", "npu", "hpu", "mtia"};
  return std::find(std::begin(kModules), std::end(kModules), word) != std::end(kModules);
}

// Without a CUDA device that the kernel lists: torch itself knows the others.
absl::StatusOr<uint32_t> OtherDevices(const Argument& argument,
                                      const EnvironmentLookup& environment, const Host& host) {
  if (!IsTorchModule(argument.text) && !host.HasOtherAccelerators()) {
    return absl::NotFoundError("none is there");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string python, FindPython(environment, host));
  return host.TorchDevices(python, argument.text);
}

// "gpu:1,3,5-7".
absl::Status PlanGpuList(const Argument& argument, const std::vector<std::string>& inherited,
                         const EnvironmentLookup& environment, const Host& host, LaunchPlan* plan) {
  uint32_t devices = host.CudaCount();
  if (devices == 0) devices = OtherDevices({.text = "gpu"}, environment, host).value_or(0);
  if (devices == 0) return NoCuda(argument);
  const Argument list{.text = argument.text.substr(kGpuList.size()), .source = argument.source};
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<uint32_t> chosen, ParseRanks(list));
  for (const uint32_t device : chosen) {
    if (device >= devices) {
      return BadValue(argument, absl::StrCat("device ", device, " is not there; this node has ",
                                             devices, ", from 0 to ", devices - 1));
    }
    if (std::count(chosen.begin(), chosen.end(), device) > 1) {
      return BadValue(argument, absl::StrCat("device ", device, " is listed twice"));
    }
    plan->devices.visible.push_back(device < inherited.size() ? inherited[device]
                                                              : absl::StrCat(device));
  }
  plan->worker_count = static_cast<uint32_t>(chosen.size());
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ParseWorkerCount(const Argument& argument, uint32_t cpus,
                                          const EnvironmentLookup& environment, const Host& host) {
  const bool wants_gpus = argument.text == "gpu" || argument.text == "auto";
  if (const uint32_t devices = wants_gpus ? host.CudaCount() : 0; devices > 0) return devices;
  if (wants_gpus || IsTorchModule(argument.text)) {
    absl::StatusOr<uint32_t> devices = OtherDevices(argument, environment, host);
    if (devices.ok()) return devices;
    if (argument.text == "gpu") return NoCuda(argument);
    if (argument.text != "auto") {
      return BadValue(argument,
                      absl::StrCat("no device of that kind was found (", devices.status().message(),
                                   "); give a number or cpu"));
    }
  }
  if (argument.text == "cpu" || argument.text == "auto") return cpus;
  const std::optional<int64_t> count = ReadInteger(argument.text);
  if (!count.has_value()) {
    return BadValue(argument, "is not a number of workers; give a number, gpu, xpu, cpu or auto");
  }
  if (*count < 1 || *count > int64_t{rendezvous::kWorkersPerNodeMax}) {
    return BadValue(argument, absl::StrCat("must be from 1 to ", rendezvous::kWorkersPerNodeMax));
  }
  return static_cast<uint32_t>(*count);
}

absl::Status PlanVirtualRanks(const EnvironmentLookup& environment, LaunchPlan* plan) {
  DevicePlan& devices = plan->devices;
  devices.virtual_local_rank = true;
  const bool by_hip = !environment(kHipVisibleDevices).value_or("").empty();
  const char* variable = by_hip ? kHipVisibleDevices : kVisibleDevices;
  if (devices.visible.empty()) devices.visible = DevicesIn(variable, environment);
  if (!devices.visible.empty() && devices.visible.size() < plan->worker_count) {
    return PlanError(absl::StrCat("--virtual_local_rank needs a device for each of the ",
                                  plan->worker_count, " workers, but ", variable, " lists ",
                                  devices.visible.size(), "; list more, or start fewer workers"));
  }
  return absl::OkStatus();
}

absl::Status PlanOmpThreads(const Argument& argument, uint32_t cpus, LaunchPlan* plan) {
  if (!argument.filled()) return absl::OkStatus();
  if (argument.text == "auto") {
    plan->omp_threads = std::max(1U, cpus / plan->worker_count);
    return absl::OkStatus();
  }
  constexpr int64_t kThreadsMax = 65536;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t threads, ParseInteger(argument, 1, kThreadsMax));
  plan->omp_threads = static_cast<uint32_t>(threads);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> InheritedDevices(const EnvironmentLookup& environment) {
  return DevicesIn(kVisibleDevices, environment);
}

absl::Status PlanDevices(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan) {
  const std::vector<std::string> inherited = InheritedDevices(environment);
  const uint32_t cpus =
      std::max(1U, std::min(host.CpuCount(), arguments.cpus_max.value_or(host.CpuCount())));
  if (absl::StartsWith(arguments.nproc_per_node.text, kGpuList)) {
    DDPRUN_RETURN_IF_ERROR(
        PlanGpuList(arguments.nproc_per_node, inherited, environment, host, plan));
  } else {
    DDPRUN_ASSIGN_OR_RETURN(plan->worker_count,
                            ParseWorkerCount(arguments.nproc_per_node, cpus, environment, host));
  }
  if (arguments.virtual_local_rank) DDPRUN_RETURN_IF_ERROR(PlanVirtualRanks(environment, plan));
  return PlanOmpThreads(arguments.omp_threads, cpus, plan);
}

}  // namespace ddprun::launcher
