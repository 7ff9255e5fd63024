#include "tools/doctor/core/machine_parsers.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

TEST(MemInfo, InBytes) {
  const MemoryFacts memory = ParseMemInfo(
      "MemTotal:       16316412 kB\nMemFree: 1 kB\nMemAvailable:   12345 kB\nSwapTotal: 0 kB\n");
  EXPECT_EQ(memory.total, 16316412ULL * 1024);
  EXPECT_EQ(memory.available, 12345ULL * 1024);
  EXPECT_EQ(memory.swap, 0U);
  EXPECT_EQ(ParseMemInfo("MemTotal: much kB\nMemTotal:").total, 0U);
  EXPECT_EQ(ParseMemInfo("MemTotal: 18446744073709551615 kB").total, 0U);
}

TEST(LimitsFile, FourOfThem) {
  constexpr char kText[] =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max core file size        0                    unlimited            bytes     \n"
      "Max processes             96365                96366                processes \n"
      "Max open files            1024                 1048576              files     \n"
      "Max locked memory         8388608              8388608              bytes     \n";
  const auto limits = ParseLimits(kText);
  ASSERT_TRUE(limits.has_value());
  EXPECT_EQ(limits->open_files.soft, 1024U);
  EXPECT_EQ(limits->open_files.hard, 1048576U);
  EXPECT_EQ(limits->locked_memory.soft, 8388608U);
  EXPECT_EQ(limits->processes.hard, 96366U);
  EXPECT_EQ(limits->core_size.soft, 0U);
  EXPECT_EQ(limits->core_size.hard, std::nullopt);
  EXPECT_FALSE(ParseLimits("Max open files 1024 1024 files\n").has_value());
  EXPECT_FALSE(ParseLimits("").has_value());
}

TEST(Names, OfSystemDriverAndCpu) {
  EXPECT_EQ(ParseSystemName("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(ParseSystemName("PRETTY_NAME=Void\n"), "Void");
  EXPECT_EQ(ParseSystemName(""), "");
  EXPECT_EQ(
      ParseDriverVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug "
                         "19 01:15:15 UTC 2023\nGCC version:  gcc version 12.3.0\n"),
      "535.104.05");
  EXPECT_EQ(
      ParseDriverVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  "
                         "Release Build\n"),
      "570.86.10");
  EXPECT_EQ(ParseDriverVersion(""), "");
  EXPECT_EQ(ParseCpuModel("processor\t: 0\nmodel name\t: AMD EPYC 7B12\nmodel name\t: other\n"),
            "AMD EPYC 7B12");
  EXPECT_EQ(ParseCpuModel("processor\t: 0\n"), "");
  EXPECT_EQ(ParsePortState("4: ACTIVE\n"), "ACTIVE");
}

TEST(MemoryLimit, BothVersions) {
  EXPECT_EQ(ParseMemoryLimit("max\n"), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit("9223372036854771712\n"), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit("8589934592\n"), 8589934592U);
  EXPECT_EQ(ParseMemoryLimit(""), std::nullopt);
}

TEST(PythonAnswer, VersionsByName) {
  const PythonFacts python = ParsePythonAnswer(
      "a warning of a sitecustomize\nversion 3.11.2\ntorch 2.11.0+cu128\ntorch_cuda 12.8\nnccl "
      "2.27.5\n");
  EXPECT_EQ(python.version, "3.11.2");
  EXPECT_EQ(python.torch, "2.11.0+cu128");
  EXPECT_EQ(python.torch_cuda, "12.8");
  EXPECT_EQ(python.nccl, "2.27.5");
  EXPECT_EQ(python.deepspeed, "");
}

TEST(Text, OfOthersCannotSteerATerminal) {
  EXPECT_EQ(ParseSystemName("PRETTY_NAME=\x1b[31mred\n").find('\x1b'), std::string::npos);
  EXPECT_LT(ParsePythonAnswer(absl::StrCat("torch ", std::string(100'000, 'x'))).torch.size(),
            300U);
}

}  // namespace
}  // namespace ddprun::launcher
