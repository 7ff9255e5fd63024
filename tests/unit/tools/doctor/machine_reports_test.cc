#include "tools/doctor/machine_reports.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/doctor/core/machine_testing.h"
#include "tools/doctor/core/machine_text.h"

namespace ddprun::launcher {
namespace {

using testing::HealthyMachine;

MachineSummary SummaryOf(const MachineFacts& facts) {
  return SummarizeReport(EnvJson(facts, std::nullopt)).value_or(MachineSummary{});
}

std::string ValueOf(const MachineSummary& machine, const std::string& name) {
  for (const MachineTrait& trait : machine.traits) {
    if (trait.name == name) return trait.value;
  }
  return "(no such trait)";
}

TEST(Reports, OfOurOwnAreUnderstood) {
  MachineFacts facts = HealthyMachine(3);
  facts.gpus[2].name = "Tesla T4";
  const MachineSummary machine = SummaryOf(facts);
  EXPECT_EQ(machine.host, "host0");
  EXPECT_EQ(ValueOf(machine, "GPUs"), "2 x NVIDIA L4, 22.5 GiB; 1 x Tesla T4, 22.5 GiB");
  EXPECT_EQ(ValueOf(machine, "torch"), "2.11.0+cu126");
  EXPECT_EQ(ValueOf(machine, "driver's CUDA"), "12.4");
  EXPECT_EQ(ValueOf(machine, "DeepSpeed"), "none");
  EXPECT_EQ(ValueOf(machine, "memory"), "64.0 GiB");
  EXPECT_EQ(ValueOf(machine, "open files"), "1048576");
  EXPECT_EQ(ValueOf(machine, "clock synchronised"), "true");
  EXPECT_EQ(ValueOf(machine, "network"), "eth0 10000 Mbit/s");
  EXPECT_EQ(ValueOf(machine, "variables"), "OMP_NUM_THREADS=1");
  for (const MachineTrait& trait : machine.traits) EXPECT_NE(trait.value, "unknown") << trait.name;
}

TEST(Reports, ThatSayNothingAreUnknown) {
  const auto machine = SummarizeReport("{\"gpus\": 7, \"python\": [1], \"host\": null}");
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(ValueOf(*machine, "GPUs"), "unknown");
  EXPECT_EQ(ValueOf(*machine, "torch"), "unknown");
  EXPECT_FALSE(SummarizeReport("[]").ok());
  EXPECT_FALSE(SummarizeReport("{").ok());
  EXPECT_FALSE(SummarizeReport("").ok());
}

TEST(Reports, OfTheDoctorComeBackWhole) {
  MachineFacts facts = HealthyMachine(2);
  facts.shared_memory->total = 64 << 20;
  const std::vector<Finding> findings = FindTroubles(facts);
  ASSERT_FALSE(findings.empty());
  const auto machine = ReadFindings(DoctorJson(facts, findings));
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->host, "host0");
  EXPECT_EQ(machine->findings, findings);
}

TEST(Reports, OfAStrangeDoctorAreErrorsWithoutText) {
  const auto machine = ReadFindings("{\"findings\": [7, {\"fix\": [1], \"severity\": \"dire\"}]}");
  ASSERT_TRUE(machine.ok());
  ASSERT_EQ(machine->findings.size(), 2U);
  EXPECT_EQ(machine->findings[1].severity, Severity::kError);
  EXPECT_EQ(machine->findings[1].what, "unknown");
  EXPECT_FALSE(ReadFindings("[]").ok());
  EXPECT_FALSE(ReadFindings("{").ok());
}

TEST(Reports, AFindingOfAllNodesIsSaidOnce) {
  const Finding slow{.severity = Severity::kWarning, .id = "slow", .what = "It is slow"};
  const Finding full{.severity = Severity::kError, .id = "full", .what = "The disk is full"};
  const std::string text = NodesDoctorText({{"a", {slow}}, {"b", {full, slow}}}, "same\n");
  EXPECT_EQ(text.find("ddprun doctor on 2 nodes: a, b\n\nerror on b: The disk is full [full]\n"),
            0U)
      << text;
  EXPECT_NE(text.find("\nwarning on all nodes: It is slow [slow]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nsame\n\n1 error, 1 warning, 0 notes\n"), std::string::npos) << text;
}

TEST(Reports, DifferencesAreThoseThatMatter) {
  MachineFacts other = HealthyMachine(2);
  other.gpus[0].uuid = "GPU-other";
  other.gpus[0].memory_free = 1;
  other.host.name = "host1";
  other.memory.total += 4096;
  const MachineSummary first = SummaryOf(HealthyMachine(2));
  EXPECT_TRUE(CompareMachines({first, SummaryOf(other)}).empty());
  other.python.torch = "2.10.0";
  const auto differences = CompareMachines({first, SummaryOf(other)});
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].name, "torch");
  EXPECT_TRUE(differences[0].serious);
}

}  // namespace
}  // namespace ddprun::launcher
