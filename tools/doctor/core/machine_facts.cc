#include "tools/doctor/core/machine_facts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/core/visible_gpus.h"

namespace ddprun::launcher {

const std::string* EnvironmentValue(const MachineFacts& facts, const std::string& name) {
  const auto found = facts.environment.find(name);
  return found == facts.environment.end() ? nullptr : &found->second;
}

std::vector<size_t> VisibleGpus(const MachineFacts& facts) {
  std::vector<std::string> uuids;
  uuids.reserve(facts.gpus.size());
  for (const GpuFacts& gpu : facts.gpus) uuids.push_back(gpu.uuid);
  const std::string* list = EnvironmentValue(facts, "CUDA_VISIBLE_DEVICES");
  return VisibleGpus(uuids, list == nullptr ? std::nullopt : std::optional<std::string>(*list));
}

std::vector<size_t> AnsweringGpus(const MachineFacts& facts) {
  std::vector<size_t> answering;
  for (const size_t i : VisibleGpus(facts)) {
    if (facts.gpus[i].why_not.empty()) answering.push_back(i);
  }
  return answering;
}

uint64_t UsableMemory(const MachineFacts& facts) {
  return std::min(facts.memory.total, facts.memory.cgroup_limit.value_or(UINT64_MAX));
}

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace ddprun::launcher
