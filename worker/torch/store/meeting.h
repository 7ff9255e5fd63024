#ifndef DDPRUN_WORKER_TORCH_STORE_MEETING_H_
#define DDPRUN_WORKER_TORCH_STORE_MEETING_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_MEETING_H_
