#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/rng.h"
#include "tests/fuzz/config_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is config_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240608;
constexpr int kRounds = 4'000;

const char* const kPieces[] = {"nnodes",      ": ",
                               "2",           "\n",
                               "role",        "[",
                               "]",           "{",
                               "}",           ", ",
                               "- ",          "  ",
                               "'",           "\"",
                               "#",           "---",
                               "&a ",         "*a",
                               "!!str ",      "? ",
                               "|\n",         ">\n",
                               "~",           "true",
                               "script",      "args",
                               "a b",         "\xc3\xa9",
                               "\xff",        "\\x41",
                               "rdzv_conf",   "distributed_type",
                               "NO",          "num_processes",
                               "fsdp_config", "FSDP",
                               "\t",          "%YAML 1.2\n",
                               "\r\n",        "\xef\xbb\xbf"};

const char* const kGood[] = {
    "nnodes: 2\nrole: a\nrdzv_conf: {join_timeout: 5}\n",
    "script: train.py\nargs: [a, 'b c']\nredirects: {0: 3}\n",
    "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n",
    "distributed_type: NO\nmixed_precision: bf16\ndynamo_config: {dynamo_backend: inductor}\n"};

TEST(ConfigSmoke, RandomPieces) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string text;
    for (uint64_t i = rng.Below(24); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    ParseConfigBytes(text);
  }
}

TEST(ConfigSmoke, DamagedFiles) {
  Rng rng(kSeed);
  std::array<int, 4> outcomes{};
  for (int round = 0; round < kRounds; ++round) {
    std::string text = kGood[rng.Below(std::size(kGood))];
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
    }
    ++outcomes[static_cast<size_t>(ParseConfigBytes(text))];
  }
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kPlan)], kRounds / 10);
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kError)], kRounds / 10);
}

TEST(ConfigSmoke, Bytes) {
  EXPECT_EQ(ParseConfigBytes("nnodes: 2"), CliOutcome::kPlan);
  EXPECT_EQ(ParseConfigBytes("nnode: 2"), CliOutcome::kError);
  // Whose error has words of ours, and lines that would be two.
  EXPECT_EQ(ParseConfigBytes("nnodes: the script to run is missing\n"), CliOutcome::kError);
}

}  // namespace
}  // namespace ddprun::launcher
