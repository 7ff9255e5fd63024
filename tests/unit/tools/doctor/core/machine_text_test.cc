#include "tools/doctor/core/machine_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/doctor/core/machine_testing.h"

namespace ddprun::launcher {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::HealthyMachine;
using testing::kGiB;

std::string Env(const MachineFacts& facts, const AdviceQuestion& question = {}) {
  return EnvText(facts, AdviseForHardware(facts, question), question);
}

TEST(EnvText, ShowsTheMachine) {
  EXPECT_EQ(Env(HealthyMachine()),
            R"(ddprun 0.1.0 on host0: Debian GNU/Linux 12 (bookworm), Linux 6.1.0, glibc 2.36

GPUs: 0; driver 550.54.15, runs CUDA up to 12.4

CPUs: 16 of 16 may be used; 8 cores, 1 socket; A CPU
  NUMA node 0: CPUs 0-3

memory: 64.0 GiB, 60.0 GiB available; swap 0 bytes
/dev/shm: 32.0 GiB, 31.0 GiB free
limits: open files 1048576; locked memory unlimited; processes unlimited; core files unlimited

network: host0 is 10.0.0.1
  eth0  up  10 Gbit/s  mtu 1500  10.0.0.1
  lo  up  mtu 65536  127.0.0.1

clock: synchronised, at most 1.5 ms off
python: 3.11.2 (/usr/bin/python3); torch 2.11.0+cu126, built for CUDA 12.6; NCCL 2.27.5; )"
            R"(DeepSpeed none
variable: OMP_NUM_THREADS=1

advice: none, because there is no GPU that workers would see
)");
}

TEST(EnvText, ShowsGpusAndAdvice) {
  MachineFacts facts = HealthyMachine(4);
  facts.gpus[1].processes = {{.pid = 42, .name = "python3"}};
  facts.gpus[3].ecc.reset();
  const std::string text = Env(facts, {.samples = 29'500, .batch = 4});
  EXPECT_THAT(text, HasSubstr("  0  NVIDIA L4, 22.0 GiB free of 22.5 GiB, compute capability 8.9\n"
                              "     ECC on, no errors; used by nobody\n"));
  EXPECT_THAT(text, HasSubstr("ECC on, no errors; used by pid 42 (python3)\n"));
  EXPECT_THAT(text, HasSubstr("ECC none; used by nobody\n"));
  EXPECT_THAT(text, EndsWith(R"(
advice for 4 GPUs of 24.2 GB
  Distributed environment      MULTI_GPU
  Number of processes          4
  Number of GPUs               4
  method                       DDP
  batch per GPU                4 (yours)
  gradient accumulation        4
  effective batch              64 = 4 x 4 x 4
  mixed precision              bf16
  data loader workers per GPU  3
  OMP threads per process      4
  steps per epoch              1,843, in which 460 updates, with 29,500 samples
  start it with                ddprun --nproc_per_node gpu --omp_threads auto train.py
)"));
}

TEST(EnvText, ShowsWhatIsHiddenOrMissing) {
  MachineFacts facts = HealthyMachine(2);
  facts.environment["CUDA_VISIBLE_DEVICES"] = "1";
  facts.container = "docker";
  facts.memory.cgroup_limit = 8 * kGiB;
  facts.shared_memory.reset();
  facts.limits->open_files = {1024, 4096};
  facts.clock->synchronised = false;
  facts.python = {};
  facts.rdma_ports = {{.device = "mlx5_0", .state = "ACTIVE", .link_layer = "InfiniBand"}};
  const std::string text = Env(facts);
  for (const char* line :
       {"glibc 2.36, in a container of docker\n",
        "used by nobody; hidden by CUDA_VISIBLE_DEVICES\n", "; the cgroup allows 8.0 GiB\n",
        "/dev/shm: is not there\n", "open files 1024 (at most 4096);", "clock: not synchronised\n",
        "python: there is none in PATH\n", "  mlx5_0 port 1  ACTIVE  unknown  InfiniBand\n",
        "advice for 1 GPU of 24.2 GB\n", "Distributed environment      NO\n",
        "start it with                ddprun train.py\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(DoctorText, ShowsFindingsAndHints) {
  MachineFacts facts = HealthyMachine();
  facts.limits->core_size = {0, 0};
  const std::string text = DoctorText(facts, FindTroubles(facts));
  EXPECT_THAT(text, HasSubstr("\nnote: workers that crash leave no core file [core_files_off]\n"
                              "  where they crashed can't be seen afterwards\n"
                              "    ulimit -c unlimited  # in the shell that starts ddprun\n"));
  EXPECT_THAT(text, EndsWith("\n0 errors, 0 warnings, 1 note\nWhen communication hangs or fails: "
                             "ddprun doctor --help says what to try.\n"));
  EXPECT_THAT(DebuggingHintsText(), HasSubstr("    export NCCL_DEBUG=INFO\n"));
  EXPECT_THAT(DebuggingHintsText(), HasSubstr("    export TORCH_DISTRIBUTED_DEBUG=DETAIL\n"));
}

}  // namespace
}  // namespace ddprun::launcher
