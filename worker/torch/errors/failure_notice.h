#ifndef DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
#define DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"

namespace ddprun::worker {

// Where a context of this process can tell the other ranks why it failed, and read why they did.
struct FailureNotice {
  c10::intrusive_ptr<c10d::Store> store;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // The store lives in rank 0's process, and ends with it.
  bool rank_zero_hosts = false;
};

// Threads of all: main() only.
void AddFailureNotice(FailureNotice notice);

// This process leaves the other ranks with status 0 and without a word of theirs: tells them `how`,
// which names no rank ("left the loop after step 3"). Nothing else tells them that it won't come
// back, and no generation ends. Returns early, having told nobody, where a store is gone. A process
// that calls exit(0) need not call it. Threads: as above.
void NotifyDeparture(const std::string& how);

// It goes on with them all the same, in its next Session: takes its own word back. Threads: as
// above.
void WithdrawDeparture();

// `peer_error` with the rank that has called NotifyDeparture, and how it left; nullopt: none has.
// Blocks for a call of the store. Threads: as above.
std::optional<absl::Status> DepartureBehind(const absl::Status& peer_error);

// A context has let go of this store.
void RemoveFailureNotice(const c10d::Store* store);

// All that this context wants of its store for a good run is done.
void NotifyJoined(const FailureNotice& notice);

// This process is about to end with `status`. An error of its own is told to the other ranks. One
// that a peer caused is returned with the peer's own words, which a broken connection doesn't know;
// waits up to a third of a second for them, as a peer may break connections before it can tell.
// A process that is killed tells nothing.
absl::Status ExchangeFailures(const absl::Status& status);

// The last thing that this process does with the stores, having ended with `status`. Where it hosts
// one, it stays until the others have joined, so that they can, and, where it failed, until they
// have left, so that they learn why; for 5 s at most, as one that was killed, or ended well before
// that, never says so.
void LeaveStores(const absl::Status& status);

// A peer's error with the words of its cause in front; unchanged where it has them already. Pure.
absl::Status WithCause(const absl::Status& peer_error, const std::string& rank,
                       const std::string& message);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
