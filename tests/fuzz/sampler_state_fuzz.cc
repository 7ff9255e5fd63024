#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "ddprun/elastic_sampler.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun {

// Reads the bytes as a sampler's state, and checks what SamplerState::Parse promises: it takes
// exactly what Serialize() gives, and a sampler goes on from whatever it takes.
// Returns: whether it took them. Aborts if a promise is broken.
bool ReadSamplerStateBytes(absl::string_view bytes);

bool ReadSamplerStateBytes(absl::string_view bytes) {
  constexpr size_t kMessageBytes = 700;  // 120 bytes of the text, at most 4 for each, and words
  const absl::StatusOr<SamplerState> state = SamplerState::Parse(bytes);
  if (!state.ok()) {
    DDPRUN_CHECK(state.status().code() == absl::StatusCode::kInvalidArgument, "another error");
    DDPRUN_CHECK(state.status().message().size() < kMessageBytes, "a message without a bound");
    return false;
  }
  DDPRUN_CHECK(state->Serialize() == bytes, "taken, and not what is written");
  DDPRUN_CHECK(state->consumed < state->dataset_size, "more consumed than there is");
  ElasticSampler sampler =
      ElasticSampler::Create(state->dataset_size, {.shuffle = state->shuffle, .global_batch = 5}, 1,
                             3)
          .value();
  DDPRUN_CHECK(sampler.Restore(*state).ok(), "a state that can't be restored");
  for (int step = 0; step < 3; ++step) {
    const StepShare share = sampler.Deal();
    DDPRUN_CHECK(share.global_count >= 1 && share.global_count <= 5, "a step of nothing");
    for (const int64_t index : share.indices) {
      DDPRUN_CHECK(index >= 0 && static_cast<uint64_t>(index) < state->dataset_size, "no sample");
    }
    DDPRUN_CHECK(sampler.Commit(share).ok(), "a step that can't be committed");
  }
  return true;
}

}  // namespace ddprun

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
  // Some inputs are taken and some refused: the run reached both sides of the reader.
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

DDPRUN_FUZZER(bytes) { ddprun::ReadSamplerStateBytes(bytes); }
