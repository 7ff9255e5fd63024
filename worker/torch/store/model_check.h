#ifndef DDPRUN_WORKER_TORCH_STORE_MODEL_CHECK_H_
#define DDPRUN_WORKER_TORCH_STORE_MODEL_CHECK_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::worker {

struct ModelCheckPlan {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  absl::Duration timeout;  // for the slowest rank
  // For error texts: what the compared texts describe, and what to do if they differ.
  std::string what = "the module";
  std::string advice = "build the same module, with the same options, on every rank";
};

// FNV-1a, which is the same on every machine.
uint64_t HashOf(absl::string_view bytes);

// Compares lists of texts, such as parameters with their shapes, over all ranks through the store:
// 8 bytes a text and rank, and the texts themselves only if they differ.
// Params: store: fresh, for this comparison alone.
// Errors: UNAVAILABLE, "PeerError: …" — a rank has reported a problem. INVALID_ARGUMENT, on every
// rank — a rank's list differs from rank 0's; the text names the rank and the first difference.
// Throws as the store does.
absl::Status CompareModels(c10d::Store& store, const ModelCheckPlan& plan,
                           const std::vector<std::string>& texts);

// Called instead of CompareModels by a rank that has nothing to compare: the others get an error
// with the problem and this rank. Doesn't wait. Throws as the store does.
void NotifyModelProblem(c10d::Store& store, uint32_t rank, const std::string& problem);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_MODEL_CHECK_H_
