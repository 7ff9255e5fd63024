#include "tests/fuzz/sampler_state_fuzz.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {

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
