#include "tools/doctor/core/hardware_advice.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/tools/doctor/core/machine_testing.h"

namespace ddprun::launcher {
namespace {

using testing::HealthyMachine;
using testing::kMiB;

HardwareAdvice AdviceFor(const MachineFacts& facts, const AdviceQuestion& question = {}) {
  return AdviseForHardware(facts, question).value_or(HardwareAdvice{});
}

MachineFacts MachineOf(size_t gpus, uint64_t memory, int compute_major = 8) {
  MachineFacts facts = HealthyMachine(gpus);
  for (GpuFacts& gpu : facts.gpus) {
    gpu.memory = memory;
    gpu.compute = ComputeCapability{compute_major, 0};
  }
  return facts;
}

std::tuple<uint32_t, uint32_t, uint64_t> Sizes(uint64_t memory) {
  const HardwareAdvice advice = AdviceFor(MachineOf(4, memory));
  return {advice.batch, advice.accumulation, advice.effective_batch};
}

TEST(HardwareAdvice, FollowsTheTable) {
  constexpr uint64_t kGb = 1'000'000'000;
  EXPECT_EQ(Sizes(24 * kGb), std::make_tuple(16, 4, 256));
  EXPECT_EQ(Sizes(20 * kGb), std::make_tuple(16, 4, 256));
  EXPECT_EQ(Sizes(20 * kGb - 1), std::make_tuple(12, 5, 240));
  EXPECT_EQ(Sizes(14 * kGb), std::make_tuple(12, 5, 240));
  EXPECT_EQ(Sizes(14 * kGb - 1), std::make_tuple(8, 8, 256));
  EXPECT_EQ(Sizes(10 * kGb), std::make_tuple(8, 8, 256));
  EXPECT_EQ(Sizes(10 * kGb - 1), std::make_tuple(4, 16, 256));
  EXPECT_EQ(Sizes(6 * kGb), std::make_tuple(4, 16, 256));
  EXPECT_EQ(Sizes(6 * kGb - 1), std::make_tuple(2, 32, 256));
  EXPECT_EQ(Sizes(0), std::make_tuple(2, 32, 256));
}

// What NVML says of cards, by the memory that they are named by.
TEST(HardwareAdvice, CardsAreInTheRowsOfTheirNames) {
  EXPECT_EQ(AdviceFor(MachineOf(1, 23034 * kMiB)).batch, 16U);  // L4, 24 GB
  EXPECT_EQ(AdviceFor(MachineOf(1, 15360 * kMiB)).batch, 12U);  // T4, 16 GB
  EXPECT_EQ(AdviceFor(MachineOf(1, 10240 * kMiB)).batch, 8U);   // 10 GB, less than 10 GiB free
  EXPECT_EQ(AdviceFor(MachineOf(1, 8192 * kMiB)).batch, 4U);
  EXPECT_EQ(AdviceFor(MachineOf(1, 5934 * kMiB)).batch, 4U);  // 6 GB
}

// 29,500 samples, 4 per GPU: the numbers that users look for.
TEST(HardwareAdvice, StepsFallWithTheGpus) {
  const AdviceQuestion question{.samples = 29'500, .batch = 4};
  const auto steps = [&](size_t gpus) {
    return AdviceFor(MachineOf(gpus, 24'000 * kMiB), question).steps_per_epoch;
  };
  EXPECT_EQ(steps(1), 7375U);
  EXPECT_EQ(steps(2), 3687U);
  EXPECT_EQ(steps(4), 1843U);
  EXPECT_EQ(steps(8), 921U);
  EXPECT_EQ(AdviceFor(MachineOf(8, 24'000 * kMiB), question).updates_per_epoch, 230U);
  EXPECT_EQ(AdviceFor(MachineOf(8, 24'000 * kMiB)).steps_per_epoch, std::nullopt);
}

TEST(HardwareAdvice, MethodByCountAndDeepSpeed) {
  MachineFacts facts = HealthyMachine(1);
  EXPECT_EQ(AdviceFor(facts).method, "plain");
  EXPECT_EQ(AdviceFor(HealthyMachine(2)).method, "DDP");
  facts = HealthyMachine(2);
  facts.python.deepspeed = "0.18.1";
  EXPECT_EQ(AdviceFor(facts).method, "ZeRO-2");
  facts.environment["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(AdviceFor(facts).method, "plain");
}

TEST(HardwareAdvice, PrecisionByTheOldestGpu) {
  EXPECT_EQ(AdviceFor(MachineOf(2, 1, 9)).precision, "bf16");
  EXPECT_EQ(AdviceFor(MachineOf(2, 1, 8)).precision, "bf16");
  EXPECT_EQ(AdviceFor(MachineOf(2, 1, 7)).precision, "fp16");
  EXPECT_EQ(AdviceFor(MachineOf(2, 1, 6)).precision, "no");
  MachineFacts facts = MachineOf(3, 1, 9);
  facts.gpus[1].compute = ComputeCapability{7, 5};
  EXPECT_EQ(AdviceFor(facts).precision, "fp16");
  facts.gpus[1].compute = std::nullopt;
  EXPECT_EQ(AdviceFor(facts).precision, "no");
}

TEST(HardwareAdvice, TheSmallestGpuAndTheUsableCpusCount) {
  MachineFacts facts = HealthyMachine(4);
  facts.gpus[2].memory = 8192 * kMiB;
  EXPECT_EQ(AdviceFor(facts).batch, 4U);
  EXPECT_EQ(AdviceFor(facts).loader_workers, 3U);
  EXPECT_EQ(AdviceFor(facts).omp_threads, 4U);
  facts.cpu.usable = 2;
  EXPECT_EQ(AdviceFor(facts).omp_threads, 1U);
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,3";
  EXPECT_EQ(AdviceFor(facts).batch, 16U);
  EXPECT_EQ(AdviceFor(facts).effective_batch, 128U);
}

TEST(HardwareAdvice, NoneWithoutGpus) {
  EXPECT_FALSE(AdviseForHardware(HealthyMachine(), {}).has_value());
  MachineFacts facts = HealthyMachine(2);
  facts.environment["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_FALSE(AdviseForHardware(facts, {}).has_value());
  facts = HealthyMachine(1);
  facts.gpus[0].memory = std::nullopt;
  EXPECT_FALSE(AdviseForHardware(facts, {}).has_value());
}

TEST(VisibleGpus, AreReadAsCudaDoes) {
  MachineFacts facts = HealthyMachine(3);
  facts.gpus[1].uuid = "GPU-33334444-bbbb";
  const auto visible = [&facts](const char* list) {
    facts.environment["CUDA_VISIBLE_DEVICES"] = list;
    return VisibleGpus(facts);
  };
  using Numbers = std::vector<size_t>;
  EXPECT_EQ(VisibleGpus(facts), (Numbers{0, 1, 2}));
  EXPECT_EQ(visible("2, 0"), (Numbers{2, 0}));
  EXPECT_EQ(visible("0,7,1"), Numbers{0});
  EXPECT_EQ(visible("-1,1"), Numbers{});
  EXPECT_EQ(visible("gpu-3333"), Numbers{});
  EXPECT_EQ(visible("GPU-3333,0"), (Numbers{1, 0}));
  EXPECT_EQ(visible(""), Numbers{});
}

}  // namespace
}  // namespace ddprun::launcher
