#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "tests/fuzz/slurm_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is slurm_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr int kRounds = 40'000;

const char* const kPieces[] = {"n",  "gpu-a", "[",         "]",  ",", "-", "01-03", "7",
                               "0",  "12",    "999999999", "9",  " ", ":", "(x",    ")",
                               "2-", "1-2",   "\xff",      "\n", "x", "a", "[1-2]", "[08-10,12]"};

TEST(SlurmSmoke, RandomPieces) {
  Rng rng(kSeed);
  int good = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text(1, "hct"[rng.Below(3)]);
    for (uint64_t i = rng.Below(8); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    good += ReadSlurmBytes(text) ? 1 : 0;
  }
  // Both sides of the readers were reached.
  EXPECT_GT(good, kRounds / 50);
  EXPECT_LT(good, kRounds / 2);
}

TEST(SlurmSmoke, Bytes) {
  EXPECT_TRUE(ReadSlurmBytes("hnode[01-03,7],other"));
  EXPECT_TRUE(ReadSlurmBytes("c2(x3),1"));
  EXPECT_TRUE(ReadSlurmBytes("t1-00:30:00"));
  EXPECT_TRUE(ReadSlurmBytes("rComment=of mine ddprun:no_progress=2,step=17"));
  EXPECT_TRUE(ReadSlurmBytes("rComment=ddprun:no_progress=5 xddprun:no_progress=,step=-1"));
  EXPECT_FALSE(ReadSlurmBytes("rJobId=1 Comment=in the line"));
  EXPECT_FALSE(ReadSlurmBytes("hn[1-[2-3]]"));
  EXPECT_FALSE(ReadSlurmBytes("hn[0-999999999]"));
  EXPECT_FALSE(ReadSlurmBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher
