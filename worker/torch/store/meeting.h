#ifndef DDPRUN_WORKER_TORCH_STORE_MEETING_H_
#define DDPRUN_WORKER_TORCH_STORE_MEETING_H_

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::worker {

// A rank's report to the others, before anything is connected.
struct Presence {
  uint32_t host = 0;    // number of its agent, or launcher
  std::string backend;  // which the rank is about to connect
  std::string problem;  // why it can't connect; "" = it can
};

// Reports to the others, which wait for this rank, why it won't come. Doesn't wait. Throws as the
// store does.
void NotifyProblem(c10d::Store& store, uint32_t rank, const std::string& problem);

// Sends this rank's report and waits for the others', in one call if the store can. Returns all, by
// rank.
// Errors: UNAVAILABLE, "PeerError: …" — a rank has a problem; the text names both.
// INVALID_ARGUMENT — ranks are about to connect different backends: the same text on all of them.
// Throws as the store does, also if a rank doesn't come within `timeout`.
absl::StatusOr<std::vector<Presence>> MeetPeers(c10d::Store& store, uint32_t rank,
                                                uint32_t world_size, const Presence& mine,
                                                absl::Duration timeout);

// Checks that all ranks are about to connect the same backend. Pure.
absl::Status CompareBackends(const std::vector<Presence>& ranks);

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

#endif  // DDPRUN_WORKER_TORCH_STORE_MEETING_H_
