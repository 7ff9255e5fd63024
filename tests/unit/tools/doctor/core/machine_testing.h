#ifndef DDPRUN_TESTS_UNIT_TOOLS_DOCTOR_CORE_MACHINE_TESTING_H_
#define DDPRUN_TESTS_UNIT_TOOLS_DOCTOR_CORE_MACHINE_TESTING_H_

#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

inline GpuFacts L4() {
  return {.name = "NVIDIA L4",
          .uuid = "GPU-11112222-aaaa",
          .memory = 23034 * kMiB,
          .memory_free = 22565 * kMiB,
          .compute = ComputeCapability{8, 9},
          .ecc = true,
          .ecc_corrected = 0,
          .ecc_uncorrected = 0,
          .remap_pending = false,
          .remap_failed = false,
          .persistence = true};
}

// A machine with `gpus` healthy GPUs of one kind.
inline MachineFacts HealthyMachine(size_t gpus = 0) {
  MachineFacts facts;
  facts.versions = {.ddprun = "0.1.0",
                    .system = "Debian GNU/Linux 12 (bookworm)",
                    .kernel = "6.1.0",
                    .glibc = "2.36"};
  facts.host = {.name = "host0", .addresses = {"10.0.0.1"}};
  facts.driver = {
      .version = "550.54.15", .cuda = 12040, .gpus_of_kernel = static_cast<uint32_t>(gpus)};
  facts.gpus.assign(gpus, L4());
  facts.cpu = {.model = "A CPU", .online = 16, .usable = 16, .cores = 8, .packages = 1};
  facts.cpu.numa_nodes[0] = {0, 1, 2, 3};
  facts.memory = {.total = 64 * kGiB, .available = 60 * kGiB};
  facts.shared_memory = SharedMemoryFacts{.total = 32 * kGiB, .free = 31 * kGiB};
  facts.limits = MachineLimits{.open_files = {1'048'576, 1'048'576}};
  facts.interfaces = {
      {.name = "eth0", .up = true, .speed_mbit = 10'000, .mtu = 1500, .addresses = {"10.0.0.1"}},
      {.name = "lo", .loopback = true, .up = true, .mtu = 65536, .addresses = {"127.0.0.1"}}};
  facts.clock = ClockFacts{.synchronised = true, .error_ms = 1.5};
  facts.python = {.path = "/usr/bin/python3",
                  .version = "3.11.2",
                  .torch = "2.11.0+cu126",
                  .torch_cuda = "12.6",
                  .nccl = "2.27.5"};
  facts.environment["OMP_NUM_THREADS"] = "1";
  return facts;
}

}  // namespace ddprun::launcher::testing

#endif  // DDPRUN_TESTS_UNIT_TOOLS_DOCTOR_CORE_MACHINE_TESTING_H_
