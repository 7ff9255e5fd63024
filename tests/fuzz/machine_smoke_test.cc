#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "tests/fuzz/machine_fuzz.h"
#include "tests/support/inputs.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is machine_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kMachineSeed = 20261122;
const int kMachineRounds = Inputs(10'000);

const std::string kMachinePieces[] = {std::string(1, '\0'),
                                      "MemTotal:",
                                      "Max open files ",
                                      "Max locked memory ",
                                      "Max processes ",
                                      "Max core file size ",
                                      "PRETTY_NAME=",
                                      "\"",
                                      "model name",
                                      ":",
                                      "torch ",
                                      "torch_cuda ",
                                      "1024",
                                      "18446744073709551616",
                                      "unlimited",
                                      " ",
                                      "\n",
                                      ",",
                                      "-1",
                                      "GPU-1",
                                      "\x1b[2J",
                                      "\xff",
                                      ".",
                                      "ACTIVE",
                                      "max",
                                      " kB"};

TEST(MachineSmoke, RandomPieces) {
  Rng rng(kMachineSeed);
  int understood = 0;
  for (int round = 0; round < kMachineRounds; ++round) {
    std::string bytes;
    for (uint64_t i = rng.Below(40); i > 0; --i) {
      bytes += kMachinePieces[rng.Below(std::size(kMachinePieces))];
    }
    understood += ReadMachineBytes(bytes) ? 1 : 0;
  }
  EXPECT_GT(understood, kMachineRounds / 1000);
  EXPECT_LT(understood, kMachineRounds / 2);
}

TEST(MachineSmoke, ReportsOfOtherNodes) {
  Rng rng(kMachineSeed);
  const std::string report =
      R"({"host": "h", "gpus": [{"name": "L4", "memory_bytes": 5}], "python": {"torch": "2"},)"
      R"( "network": {"interfaces": [{"name": "e", "up": true, "speed_mbit_s": 7}]},)"
      R"( "environment": {"A": "b"}})";
  ReadMachineBytes(report);
  for (int round = 0; round < kMachineRounds; ++round) {
    std::string bytes = report;
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      bytes[rng.Below(bytes.size())] = "{}[],:\"0\x1b\xff"[rng.Below(10)];
    }
    ReadMachineBytes(bytes);
  }
}

TEST(MachineSmoke, Bytes) {
  EXPECT_TRUE(ReadMachineBytes("MemTotal: 1024 kB\n"));
  EXPECT_FALSE(ReadMachineBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher
