// show_binding ALLOWED: the CPUs that --numa_binding selects on the machine below $HWLOC_FSROOT,
// for a process that may run on the CPUs ALLOWED ("0,1,2"). Tests compare them with torch's own.
// One line for each mode: "<mode> <CPUs of worker 0> <CPUs of worker 1> …", or "<mode> error:
// <text>". As many workers as GPUs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "launcher/core/cpu_binding.h"
#include "launcher/machine/topology_probe.h"

namespace {

using ddprun::launcher::CpuSet;
using ddprun::launcher::CpuTopology;
using ddprun::launcher::GpuPlace;
using ddprun::launcher::NumaBinding;

std::optional<std::vector<std::string>> Visible() {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return std::nullopt;
  return std::vector<std::string>(absl::StrSplit(list, ','));
}

void Show(NumaBinding mode, const CpuTopology& topology, const std::vector<GpuPlace>& gpus) {
  std::printf("%s", ddprun::launcher::NumaBindingName(mode));
  const auto plan =
      ddprun::launcher::PlanNumaBinding(mode, topology, gpus, static_cast<uint32_t>(gpus.size()));
  if (!plan.ok()) std::printf(" error: %s", std::string(plan.status().message()).c_str());
  if (plan.ok()) {
    for (const CpuSet& cpus : *plan) {
      std::printf(" %s", ddprun::launcher::CpuSetText(cpus).c_str());
    }
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const char* root = std::getenv("HWLOC_FSROOT");
  if (argc != 2 || root == nullptr) return 2;
  absl::StatusOr<CpuTopology> topology = ddprun::launcher::ProbeCpuTopology();
  const absl::StatusOr<std::vector<GpuPlace>> gpus = ddprun::launcher::ProbeGpus(Visible(), root);
  if (!topology.ok() || !gpus.ok()) {
    const absl::Status& error = topology.ok() ? gpus.status() : topology.status();
    std::fprintf(stderr, "%s\n", std::string(error.message()).c_str());
    return 1;
  }
  topology->allowed.clear();
  for (const auto& text : absl::StrSplit(argv[1], ',')) {
    uint32_t cpu = 0;
    if (absl::SimpleAtoi(text, &cpu)) topology->allowed.insert(cpu);
  }
  for (const NumaBinding mode : {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive,
                                 NumaBinding::kCoreComplex}) {
    Show(mode, *topology, *gpus);
  }
  return 0;
}
