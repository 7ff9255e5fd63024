#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "tests/fuzz/kubernetes_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is kubernetes_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kHostsSeed = 20261123;
constexpr int kHostsRounds = 40'000;

const char* const kHostsPieces[] = {"train-1", ".",  "ns.svc", "\t", "\n", "#",   "10.1.2.3",
                                    " ",       "\r", "::",     "a",  "-",  "\xff"};

TEST(KubernetesSmoke, RandomPieces) {
  Rng rng(kHostsSeed);
  int good = 0;
  for (int round = 0; round < kHostsRounds; ++round) {
    std::string text = "train-1\n10.1.2.3 ";
    for (uint64_t i = rng.Below(8); i > 0; --i) {
      text += kHostsPieces[rng.Below(std::size(kHostsPieces))];
    }
    good += ReadHostsBytes(text) ? 1 : 0;
  }
  // Both sides of the reader were reached.
  EXPECT_GT(good, kHostsRounds / 1000);
  EXPECT_LT(good, kHostsRounds / 2);
}

TEST(KubernetesSmoke, Bytes) {
  EXPECT_TRUE(ReadHostsBytes("a-0\n127.0.0.1 localhost\n10.0.0.1\ta-0.b.svc\ta-0\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0\n10.0.0.1 a-0 # a-0.b\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0\n10.0.0.1 xa-0.b a-00.b a-0.b/c\n"));
  EXPECT_FALSE(ReadHostsBytes("a-0"));
  EXPECT_FALSE(ReadHostsBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher
