#include "tools/doctor/core/hardware_advice.h"

#include <algorithm>
#include <vector>

namespace ddprun::launcher {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;
constexpr uint32_t kLoaderWorkersPerGpu = 3;

struct AdviceRow {
  uint64_t memory_min;
  uint32_t batch;
  uint32_t accumulation;
};
constexpr AdviceRow kAdviceTable[] = {{20 * kGigabyte, 16, 4},
                                      {14 * kGigabyte, 12, 5},
                                      {10 * kGigabyte, 8, 8},
                                      {6 * kGigabyte, 4, 16},
                                      {0, 2, 32}};

const AdviceRow& RowFor(uint64_t memory) {
  return *std::find_if(std::begin(kAdviceTable), std::end(kAdviceTable),
                       [memory](const AdviceRow& row) { return memory >= row.memory_min; });
}

// All workers compute alike, so the oldest GPU decides.
std::string PrecisionFor(const MachineFacts& facts, const std::vector<size_t>& visible) {
  int oldest = 0;
  for (const size_t i : visible) {
    const int major = facts.gpus[i].compute.value_or(ComputeCapability{}).major;
    oldest = i == visible.front() ? major : std::min(oldest, major);
  }
  if (oldest >= 8) return "bf16";
  return oldest == 7 ? "fp16" : "no";
}

}  // namespace

std::optional<HardwareAdvice> AdviseForHardware(const MachineFacts& facts,
                                                const AdviceQuestion& question) {
  const std::vector<size_t> visible = AnsweringGpus(facts);
  HardwareAdvice advice{.gpus = static_cast<uint32_t>(visible.size()), .memory = UINT64_MAX};
  for (const size_t i : visible) {
    advice.memory = std::min(advice.memory, facts.gpus[i].memory.value_or(UINT64_MAX));
  }
  if (visible.empty() || advice.memory == UINT64_MAX) return std::nullopt;
  const AdviceRow& row = RowFor(advice.memory);
  advice.batch = question.batch.value_or(row.batch);
  advice.accumulation = row.accumulation;
  const uint64_t step = uint64_t{advice.batch} * advice.gpus;
  advice.effective_batch = step * advice.accumulation;
  advice.loader_workers = kLoaderWorkersPerGpu;
  advice.omp_threads = std::max(1U, facts.cpu.usable / advice.gpus);
  advice.precision = PrecisionFor(facts, visible);
  advice.method = facts.python.deepspeed.empty() ? "DDP" : "ZeRO-2";
  if (advice.gpus == 1) advice.method = "plain";
  if (question.samples.has_value()) {
    advice.steps_per_epoch = *question.samples / step;
    advice.updates_per_epoch = *advice.steps_per_epoch / advice.accumulation;
  }
  return advice;
}

}  // namespace ddprun::launcher
