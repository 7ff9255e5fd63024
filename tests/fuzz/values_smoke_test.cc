#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "tests/fuzz/values_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is values_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240609;
constexpr int kRounds = 40'000;

const char* const kPieces[] = {"0",
                               "1",
                               "3",
                               "12",
                               "4095",
                               "4096",
                               "99999999999999999999",
                               "-",
                               ":",
                               ",",
                               ",,",
                               "*",
                               "=",
                               " ",
                               "join_timeout",
                               "lease",
                               "is_host",
                               "true",
                               "5",
                               "150ms",
                               "nan",
                               "SIGTERM",
                               "usr1",
                               "KILL",
                               "15",
                               "\xff",
                               "\n",
                               "_",
                               "+"};

TEST(ValuesSmoke, RandomPieces) {
  Rng rng(kSeed);
  int values = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text(1, "csrtg"[rng.Below(5)]);
    for (uint64_t i = rng.Below(8); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    values += ReadValueBytes(text) ? 1 : 0;
  }
  // Both sides of the readers were reached.
  EXPECT_GT(values, kRounds / 20);
  EXPECT_LT(values, kRounds / 2);
}

TEST(ValuesSmoke, Bytes) {
  EXPECT_TRUE(ReadValueBytes("cjoin_timeout=5,is_host=true"));
  EXPECT_TRUE(ReadValueBytes("s0-3:1,*:2"));
  EXPECT_TRUE(ReadValueBytes("r0,2-4"));
  EXPECT_TRUE(ReadValueBytes("ta,,b,c"));
  EXPECT_TRUE(ReadValueBytes("gUSR1,SIGUSR2"));
  EXPECT_FALSE(ReadValueBytes("s4"));
  EXPECT_FALSE(ReadValueBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher
