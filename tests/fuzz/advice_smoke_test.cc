#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "base/rng.h"
#include "launcher/advice/advice_rules.h"
#include "tests/fuzz/advice_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is advice_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261122;

// Pieces of workers' words and of rules.
constexpr const char* kPieces[] = {"\n",
                                   "\r",
                                   " ",
                                   "CUDA out of memory. Tried to allocate ",
                                   "2.00 GiB",
                                   ". GPU 0 has a total capacity of ",
                                   "`reboot`",
                                   "$(reboot)",
                                   "ModuleNotFoundError: No module named '",
                                   "a",
                                   "'",
                                   "can't open file '",
                                   "': [Errno 2]",
                                   "Connect to ",
                                   "10.0.0.1",
                                   "<1> failed",
                                   "EADDRINUSE",
                                   "port: 1",
                                   "\xff",
                                   "${host}",
                                   "- name: a\n",
                                   "  match: ['",
                                   "(?P<a>x)",
                                   "']\n",
                                   "  advice: ",
                                   "  next: n\n"};

TEST(AdviceSmokeTest, AnyPiecesHaveAnAnswer) {
  Rng rng(kSeed);
  int advised = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes;
    for (uint64_t i = rng.Below(12); i > 0; --i) bytes += kPieces[rng.Below(std::size(kPieces))];
    if (FuzzAdvice(bytes)) ++advised;
  }
  EXPECT_GT(advised, 300);
}

TEST(AdviceSmokeTest, DamagedRulesHaveAnAnswer) {
  Rng rng(kSeed);
  const std::string whole = std::string(kAdviceRules).substr(0, 3000);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole.substr(0, rng.Below(whole.size() + 1));
    if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    FuzzAdvice(bytes);
  }
}

}  // namespace
}  // namespace ddprun::launcher
