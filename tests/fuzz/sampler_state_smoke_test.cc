#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "tests/fuzz/sampler_state_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is
// sampler_state_fuzzer.
namespace ddprun {
namespace {

constexpr uint64_t kStateSeed = 20261125;
constexpr int kStateRounds = 20'000;

const char* const kNumbers[] = {"0",
                                "1",
                                "7",
                                "4611686018427387904",
                                "4611686018427387905",
                                "9",
                                "-1",
                                "07",
                                "18446744073709551615",
                                "18446744073709551616",
                                "",
                                "+2",
                                " 3",
                                "1e3"};

std::string RandomState(Rng& rng) {
  const auto number = [&rng] { return kNumbers[rng.Below(std::size(kNumbers))]; };
  return absl::StrCat("ddprun-sampler 1 dataset_size=", number(), " seed=", number(),
                      " shuffle=", number(), " epoch=", number(), " consumed=", number());
}

TEST(SamplerStateSmoke, RandomNumbers) {
  Rng rng(kStateSeed);
  int good = 0;
  for (int round = 0; round < kStateRounds; ++round)
    good += ReadSamplerStateBytes(RandomState(rng));
  // Both sides of the reader were reached.
  EXPECT_GT(good, kStateRounds / 1000);
  EXPECT_LT(good, kStateRounds / 2);
}

TEST(SamplerStateSmoke, DamagedBytes) {
  Rng rng(kStateSeed);
  const std::string whole =
      "ddprun-sampler 1 dataset_size=4611686018427387904 seed=18446744073709551615 shuffle=1 "
      "epoch=4611686018427387904 consumed=4611686018427387903";
  EXPECT_TRUE(ReadSamplerStateBytes(whole));
  for (int round = 0; round < kStateRounds; ++round) {
    std::string text = whole.substr(0, rng.Chance(30) ? rng.Below(whole.size()) : whole.size());
    for (uint64_t i = rng.Below(4); i > 0 && !text.empty(); --i) {
      text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
    }
    ReadSamplerStateBytes(text);
  }
}

}  // namespace
}  // namespace ddprun
