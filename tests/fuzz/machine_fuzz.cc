#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/inputs.h"
#include "tools/doctor/core/machine_findings.h"
#include "tools/doctor/core/machine_parsers.h"
#include "tools/doctor/core/machine_text.h"
#include "tools/doctor/machine_reports.h"

namespace ddprun::launcher {

// Reads the bytes as the files of a machine and as Python's answer: parts divided by zero bytes, in
// the order of machine_parsers.h, CUDA_VISIBLE_DEVICES and a network interface's variable last.
// Also as the report of another node's ddprun env. Checks that whatever comes of them can be shown
// and judged. Returns: whether any of it was understood. Aborts if a promise is broken.
bool ReadMachineBytes(absl::string_view bytes);

namespace {

MachineFacts FactsOf(const std::vector<std::string>& parts) {
  MachineFacts facts;
  facts.memory = ParseMemInfo(parts[0]);
  facts.limits = ParseLimits(parts[1]);
  facts.versions.system = ParseSystemName(parts[2]);
  facts.driver.version = ParseDriverVersion(parts[3]);
  facts.cpu.model = ParseCpuModel(parts[4]);
  facts.memory.cgroup_limit = ParseMemoryLimit(parts[5]);
  facts.python = ParsePythonAnswer(parts[6]);
  facts.python.path = "python3";
  facts.rdma_ports.push_back({.device = "mlx5_0", .state = ParsePortState(parts[7])});
  facts.gpus.assign(2, {.name = "GPU", .uuid = "GPU-1", .memory = 1, .memory_free = 1});
  facts.environment["CUDA_VISIBLE_DEVICES"] = parts[8];
  facts.environment["NCCL_SOCKET_IFNAME"] = parts[9];
  return facts;
}

// Reads the bytes as the report of another node.
void CheckReport(absl::string_view bytes) {
  if (const auto found = ReadFindings(bytes); found.ok()) {
    DDPRUN_CHECK(!NodesDoctorText({*found}, "").empty(), "no text");
  }
  const auto machine = SummarizeReport(bytes);
  if (!machine.ok()) return;
  const std::string text = ComparisonText({*machine, {.host = "host1", .traits = {}}});
  DDPRUN_CHECK(Printable(text) == text, "what others wrote could steer the terminal");
  DDPRUN_CHECK(!ComparisonJson({std::string(bytes)}, {*machine}).empty(), "no JSON");
}

}  // namespace

bool ReadMachineBytes(absl::string_view bytes) {
  constexpr size_t kParts = 10;
  std::vector<std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\0', kParts - 1));
  parts.resize(kParts);
  const MachineFacts facts = FactsOf(parts);
  DDPRUN_CHECK(VisibleGpus(facts).size() <= parts[8].size() + 1, "more GPUs than entries");
  const std::string report = EnvText(facts, AdviseForHardware(facts, {.samples = 1000}), {});
  DDPRUN_CHECK(Printable(report) == report, "what others wrote could steer the terminal");
  const std::vector<Finding> findings = FindTroubles(facts);
  const std::string advice = DoctorText(facts, findings);
  for (const Finding& finding : findings) {
    DDPRUN_CHECK(!finding.id.empty() && !finding.what.empty() && !finding.why.empty(), finding.id);
  }
  DDPRUN_CHECK(Printable(advice) == advice, "what others wrote could steer the terminal");
  CheckReport(bytes);
  return facts.memory.total > 0 || facts.limits.has_value() || !facts.versions.system.empty() ||
         !facts.python.torch.empty();
}

}  // namespace ddprun::launcher

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

DDPRUN_FUZZER(bytes) { ddprun::launcher::ReadMachineBytes(bytes); }
