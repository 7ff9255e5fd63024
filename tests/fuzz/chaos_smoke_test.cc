#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "tests/fuzz/chaos_fuzz.h"
#include "tests/support/inputs.h"
#include "tests/support/trees.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is chaos_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240610;
const int kRounds = Inputs(4'000);

const char* const kKeys[] = {"fault", "worker", "node",   "signal", "at",      "since",
                             "step",  "moment", "every",  "times",  "for",     "rejoin",
                             "loss",  "seed",   "faults", "expect", "noticed", "direction"};
const char* const kValues[] = {"worker_killed",
                               "worker_stopped",
                               "agent_killed",
                               "agent_frozen",
                               "service_killed",
                               "service_stalled",
                               "network_cut",
                               "packet_loss",
                               "random",
                               "1",
                               "0",
                               "-1",
                               "30s",
                               "5%",
                               "job",
                               "generation",
                               "saving",
                               "running",
                               "KILL",
                               "in",
                               "1e9h",
                               "[]",
                               "{",
                               "\xff",
                               "~"};

std::string ReadCorpus(const std::string& name) {
  std::ifstream file(InSourceTree("tests/fuzz/corpus/chaos/" + name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChaosSmoke, RandomFaults) {
  Rng rng(kSeed);
  std::array<int, 2> outcomes{};
  for (int round = 0; round < kRounds; ++round) {
    std::string text = "faults: [{fault: ";
    text += kValues[rng.Below(8)];
    for (uint64_t i = 1 + rng.Below(3); i > 0; --i) {
      text += std::string(", ") + kKeys[rng.Below(std::size(kKeys))] + ": " +
              kValues[rng.Below(std::size(kValues))];
    }
    ++outcomes[static_cast<size_t>(ParseChaosBytes(text + "}]"))];
  }
  EXPECT_GT(outcomes[0], 0);
  EXPECT_GT(outcomes[1], kRounds / 2);
}

TEST(ChaosSmoke, DamagedFiles) {
  Rng rng(kSeed);
  std::array<int, 2> outcomes{};
  for (const char* name : {"plan.yaml", "events.jsonl"}) {
    const std::string good = ReadCorpus(name);
    ASSERT_FALSE(good.empty()) << name;
    for (int round = 0; round < kRounds; ++round) {
      std::string text = good;
      for (uint64_t i = rng.Below(4); i > 0; --i) {
        text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
      }
      ++outcomes[static_cast<size_t>(ParseChaosBytes(text))];
    }
  }
  EXPECT_GT(outcomes[0], kRounds / 10);
  EXPECT_GT(outcomes[1], kRounds / 10);
}

}  // namespace
}  // namespace ddprun::launcher
