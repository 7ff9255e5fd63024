#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_STATE_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_STATE_H_

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::worker {

// A name in a ZeroState: "<parameter>.<field>" for a whole tensor or a count, "<parameter>.<field>
// @<begin>" for a part of the flattened one.
struct ZeroStateName {
  size_t parameter = 0;
  std::string field;
  int64_t begin = -1;  // -1 = whole

  std::string ToText() const;
  // Returns nullopt for other names ("group.0.learning_rate").
  static std::optional<ZeroStateName> Parse(const std::string& text);
};

// Whether a state's tensors have all elements [begin, begin + length) of a parameter's field.
bool HasAll(const std::map<std::string, torch::Tensor>& state, const ZeroStateName& field,
            int64_t length);

// Elements [begin, begin + length) of a parameter's field, put together from a state's tensors.
// Errors: FAILED_PRECONDITION — they don't cover it all.
absl::StatusOr<torch::Tensor> CutOut(const std::map<std::string, torch::Tensor>& state,
                                     const ZeroStateName& field, int64_t length);

// The state with its parts joined into whole tensors, as an optimizer without ZeRO has it.
// Params: shapes: of the parameters, by number.
// Errors: FAILED_PRECONDITION — parts are missing, or of other parameters.
absl::StatusOr<std::map<std::string, torch::Tensor>> JoinParts(
    const std::map<std::string, torch::Tensor>& state,
    const std::vector<std::vector<int64_t>>& shapes);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_STATE_H_
