#include "launcher/core/machine_facts.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

std::optional<size_t> GpuOfEntry(const std::vector<GpuFacts>& gpus, absl::string_view entry) {
  int64_t number = 0;
  if (absl::SimpleAtoi(entry, &number)) {
    if (number < 0 || number >= static_cast<int64_t>(gpus.size())) return std::nullopt;
    return static_cast<size_t>(number);
  }
  if (!absl::StartsWith(entry, "GPU-")) return std::nullopt;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (absl::StartsWithIgnoreCase(gpus[i].uuid, entry)) return i;
  }
  return std::nullopt;
}

}  // namespace

const std::string* EnvironmentValue(const MachineFacts& facts, const std::string& name) {
  const auto found = facts.environment.find(name);
  return found == facts.environment.end() ? nullptr : &found->second;
}

std::vector<size_t> VisibleGpus(const MachineFacts& facts) {
  std::vector<size_t> visible;
  const std::string* list = EnvironmentValue(facts, "CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (size_t i = 0; i < facts.gpus.size(); ++i) visible.push_back(i);
    return visible;
  }
  for (const absl::string_view entry : absl::StrSplit(*list, ',')) {
    const std::optional<size_t> gpu = GpuOfEntry(facts.gpus, absl::StripAsciiWhitespace(entry));
    if (!gpu.has_value()) break;
    visible.push_back(*gpu);
  }
  return visible;
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
