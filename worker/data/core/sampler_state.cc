#include <cstddef>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "ddprun/elastic_sampler.h"
#include "ddprun/keyed_permutation.h"
#include "worker/data/core/sampler_check.h"

namespace ddprun {
namespace {

constexpr absl::string_view kFormat = "ddprun-sampler";
constexpr absl::string_view kVersion = "1";
// Far below where sums overflow.
constexpr uint64_t kEpochMax = uint64_t{1} << 62;

absl::Status NotAState(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", Printable(text.substr(0, 120)),
                   "' is no state of a sampler: it must be as SamplerState::Serialize() gives it, "
                   "\"ddprun-sampler 1 dataset_size=… seed=… shuffle=… epoch=… consumed=…\""));
}

}  // namespace

absl::Status CheckSamplerState(const SamplerState& state) {
  if (state.dataset_size < 1 || state.dataset_size > KeyedPermutation::kSizeMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a sampler needs a data set of 1 to 2^62 samples; dataset_size is ", state.dataset_size));
  }
  // When all of an epoch is consumed, the state is at the beginning of the next one.
  if (state.consumed >= state.dataset_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sampler's state has consumed ", state.consumed, " of the ",
                     state.dataset_size, " samples of epoch ", state.epoch,
                     "; it must be fewer: the state is damaged, or of another data set"));
  }
  if (state.epoch > kEpochMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sampler's state is in epoch ", state.epoch, "; the last one is 2^62"));
  }
  return absl::OkStatus();
}

std::string SamplerState::Serialize() const {
  return absl::StrCat(kFormat, " ", kVersion, " dataset_size=", dataset_size, " seed=", seed,
                      " shuffle=", shuffle ? 1 : 0, " epoch=", epoch, " consumed=", consumed);
}

absl::StatusOr<SamplerState> SamplerState::Parse(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  if (words.size() < 2 || words[0] != kFormat) return NotAState(text);
  if (words[1] != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a sampler's state is of version '", Printable(words[1].substr(0, 20)),
        "', and this ddprun reads version ", kVersion, ": resume with the ddprun that wrote it"));
  }
  SamplerState state;
  uint64_t shuffle = 0;
  const struct {
    absl::string_view key;
    uint64_t* value;
  } fields[] = {{"dataset_size=", &state.dataset_size},
                {"seed=", &state.seed},
                {"shuffle=", &shuffle},
                {"epoch=", &state.epoch},
                {"consumed=", &state.consumed}};
  if (words.size() != 2 + std::size(fields)) return NotAState(text);
  for (size_t i = 0; i < std::size(fields); ++i) {
    absl::string_view word = words[i + 2];
    if (!absl::ConsumePrefix(&word, fields[i].key) || !absl::SimpleAtoi(word, fields[i].value)) {
      return NotAState(text);
    }
  }
  state.shuffle = shuffle == 1;
  // Serialize() writes no signs, blanks and leading zeros, which SimpleAtoi accepts.
  if (state.Serialize() != text) return NotAState(text);
  if (absl::Status status = CheckSamplerState(state); !status.ok()) return status;
  return state;
}

}  // namespace ddprun
