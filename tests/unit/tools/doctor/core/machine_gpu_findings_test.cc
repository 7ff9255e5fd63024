#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "tests/unit/tools/doctor/core/machine_testing.h"
#include "tools/doctor/core/machine_findings.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HealthyMachine;
using ::testing::IsEmpty;
using testing::kMiB;

std::vector<Finding> GpuTroubles(const MachineFacts& facts) {
  std::vector<Finding> findings;
  FindGpuTroubles(facts, &findings);
  return findings;
}

// "id: what | fix | fix" of the only finding.
std::string Only(const MachineFacts& facts) {
  const std::vector<Finding> findings = GpuTroubles(facts);
  if (findings.size() != 1) return absl::StrCat(findings.size(), " findings");
  return absl::StrCat(findings[0].id, ": ", findings[0].what, " | ",
                      absl::StrJoin(findings[0].fix, " | "));
}

TEST(GpusInUse, OthersAreNamedAndTheFreeOnesProposed) {
  MachineFacts facts = HealthyMachine(4);
  facts.gpus[1].processes = {{.pid = 4242, .memory = 1024 * kMiB, .name = "python3"}};
  facts.gpus[2].processes = {{.pid = 77}};
  EXPECT_EQ(Only(facts),
            "gpus_in_use: other processes compute on GPUs 1, 2 (GPU 1: pid 4242 (python3) 1.0 GiB; "
            "GPU 2: pid 77) | ps -o pid,user,etime,args -p 77,4242 | CUDA_VISIBLE_DEVICES=0,3 "
            "ddprun --nproc_per_node gpu train.py  # leaves out GPUs 1, 2");
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,3";
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
}

TEST(GpusInUse, WhenAllAreThereIsNothingToChoose) {
  MachineFacts facts = HealthyMachine(1);
  facts.gpus[0].processes = {{.pid = 77}};
  EXPECT_THAT(Only(facts), HasSubstr(" | ps -o pid,user,etime,args -p 77"));
  EXPECT_THAT(Only(facts), ::testing::Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(GpusInUse, MemoryThatNobodyHolds) {
  MachineFacts facts = HealthyMachine(2);
  facts.gpus[1].memory_free = 10'000 * kMiB;
  EXPECT_THAT(Only(facts), HasSubstr("gpu_memory_taken: more than a fifth of the memory of GPU 1"));
  facts.gpus[1].memory_free.reset();
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
}

TEST(Models, MixedOnesAreSplitUp) {
  MachineFacts facts = HealthyMachine(3);
  facts.gpus[1].name = "Tesla T4";
  EXPECT_THAT(Only(facts),
              HasSubstr("gpus_mixed: the GPUs are of different models: NVIDIA L4 (GPUs 0, 2), "
                        "Tesla T4 (GPU 1) | CUDA_VISIBLE_DEVICES=0,2 ddprun"));
  facts.environment["CUDA_VISIBLE_DEVICES"] = "2,0";
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
}

TEST(Memory, ErrorsResetAndReplacement) {
  MachineFacts facts = HealthyMachine(2);
  facts.gpus[1].ecc_uncorrected = 3;
  EXPECT_EQ(
      Only(facts),
      "gpu_memory_errors: memory errors that could not be corrected on GPU 1 since the driver "
      "was loaded | nvidia-smi -q -d ECC,ROW_REMAPPER | sudo nvidia-smi --gpu-reset -i 1 | "
      "CUDA_VISIBLE_DEVICES=0 ddprun --nproc_per_node gpu train.py  # leaves out GPU 1");
  facts = HealthyMachine(2);
  facts.gpus[0].ecc_corrected = 12;  // what ECC is for
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
  facts.gpus[0].remap_pending = true;
  EXPECT_THAT(Only(facts), HasSubstr("gpu_reset_needed: GPU 0"));
  facts.gpus[0].remap_failed = true;
  EXPECT_THAT(Only(facts), HasSubstr("gpu_memory_worn: GPU 0"));
}

TEST(Lost, IsNamedAndLeftOutOfTheRest) {
  MachineFacts facts = HealthyMachine(3);
  for (size_t i = 0; i < 3; ++i) facts.gpus[i].uuid = absl::StrCat("GPU-", i);
  facts.gpus[1] = {.why_not = "lost"};
  EXPECT_EQ(Only(facts),
            "gpu_not_answering: GPU 1 doesn't answer: lost | sudo dmesg | grep -i -e xid -e nvrm | "
            "tail  # Xid 79: it fell off the bus | sudo reboot  # power off and on if that doesn't "
            "help; replace it if it comes back | CUDA_VISIBLE_DEVICES=GPU-0,GPU-2 ddprun "
            "--nproc_per_node gpu train.py  # runs on those that answer");
  facts.environment["CUDA_VISIBLE_DEVICES"] = "0,2";
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
}

TEST(Lost, WithoutAnotherThereIsNothingToRunOn) {
  MachineFacts facts = HealthyMachine(1);
  facts.gpus[0] = {.why_not = "lost"};
  EXPECT_THAT(Only(facts), ::testing::Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(Modes, EccAndPersistence) {
  MachineFacts facts = HealthyMachine(2);
  facts.gpus[0].ecc = false;
  EXPECT_THAT(Only(facts), HasSubstr("ecc_differs: error correction is off on GPU 0"));
  facts.gpus[1].ecc = false;
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
  facts.gpus[1].persistence = false;
  EXPECT_THAT(Only(facts), HasSubstr("sudo nvidia-smi -pm 1"));
}

TEST(Driver, ThatDoesNotAnswer) {
  MachineFacts facts = HealthyMachine();
  facts.driver.why_not = "there is no libnvidia-ml.so.1";
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());  // there are no GPUs
  facts.driver.gpus_of_kernel = 2;
  EXPECT_THAT(Only(facts), HasSubstr("the kernel has 2 NVIDIA GPUs, but there is no libnvidia-ml"));
  facts.container = "docker";
  EXPECT_THAT(Only(facts), HasSubstr("NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
  facts.container = "";
  facts.driver.why_not = "nvmlInit failed with NVML's error 18: the library is of another version";
  EXPECT_THAT(Only(facts), HasSubstr("sudo reboot"));
}

TEST(VisibleDevices, WrongOrNone) {
  MachineFacts facts = HealthyMachine(2);
  const auto only = [&facts](const char* list) {
    facts.environment["CUDA_VISIBLE_DEVICES"] = list;
    return Only(facts);
  };
  EXPECT_THAT(only("0,2"), HasSubstr("'2' of CUDA_VISIBLE_DEVICES=0,2 is none of the 2 GPUs"));
  EXPECT_THAT(only(""), HasSubstr("gpus_hidden"));
  EXPECT_THAT(only("-1"), HasSubstr("gpus_hidden"));
  EXPECT_EQ(only("1,0"), "0 findings");
  EXPECT_EQ(only("MIG-8932f937"), "0 findings");  // which NVML counts differently
}

TEST(Torch, ThatDoesNotFitTheDriver) {
  MachineFacts facts = HealthyMachine(1);
  facts.python.torch_cuda = "13.0";
  EXPECT_THAT(Only(facts), HasSubstr("driver_too_old: torch 2.11.0+cu126 was built for CUDA 13.0, "
                                     "the driver 550.54.15 runs 12.4 at most"));
  facts.driver.cuda.reset();
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
  facts.python.torch_cuda = "";
  EXPECT_THAT(Only(facts), HasSubstr("torch_without_cuda"));
  facts.python.torch = "";
  EXPECT_THAT(GpuTroubles(facts), IsEmpty());
  EXPECT_THAT(GpuTroubles(HealthyMachine(0)), IsEmpty());
}

TEST(Python, ThatDoesNotAnswer) {
  MachineFacts facts = HealthyMachine();
  facts.python = {.path = "/opt/python", .why_not = "'/opt/python' failed"};
  EXPECT_THAT(Only(facts), HasSubstr("python_not_answering"));
}

}  // namespace
}  // namespace ddprun::launcher
