#ifndef DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
#define DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"

namespace ddprun::worker {

// A context's place for error reports: where it writes why this rank failed, and reads why the
// other ranks did.
struct FailureNotice {
  c10::intrusive_ptr<c10d::Store> store;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // True: the store is in rank 0's process, and ends with that process.
  bool rank_zero_hosts = false;
};

// Adds a context. Threads of all functions here: main() only.
void AddFailureNotice(FailureNotice notice);

// Reports that this process leaves the other ranks, with status 0 and before they have ended. `how`
// names no rank ("left the loop after step 3"). Without this report the others would wait, because
// an exit with status 0 ends no generation. Returns early, without a report, if a store is gone. A
// process that calls exit(0) needn't call it. A forked child has no contexts, so it reports
// nothing.
void NotifyDeparture(const std::string& how);

// Takes NotifyDeparture's report back: this process goes on with the others in its next Session.
void WithdrawDeparture();

// Returns `peer_error` with the rank that has called NotifyDeparture, and how it left; nullopt if
// no rank has. Blocks for a call of the store.
std::optional<absl::Status> DepartureBehind(const absl::Status& peer_error);

// Reports that this rank ends a Session early, by StopTraining() after this step. If the others go
// on, StopBehind names it. Returns early, without a report, if a store is gone.
void NotifyStop(uint64_t session, int64_t step);

// If `status` says that ranks don't do the same, and some have called NotifyStop and others haven't
// in that step: returns the error with that cause. Else nullopt. Blocks for calls of the store.
std::optional<absl::Status> StopBehind(const absl::Status& status);

// Call it when a context has released this store.
void RemoveFailureNotice(const c10d::Store* store);

// Reports that this context has joined: an error-free run needs the store no more.
void NotifyJoined(const FailureNotice& notice);

// Call it when this process is about to end with `status`. An error of this process is reported to
// the other ranks. If a peer caused the error, returns it with the peer's own report, which says
// more than a broken connection; waits up to a third of a second for the report, because a peer may
// break connections before it can write one. A killed process reports nothing.
absl::Status ExchangeFailures(const absl::Status& status);

// Call it last, after this process has ended with `status`. A process that hosts a store stays
// until the other ranks have joined, so that they can, and, if it failed, until they have read why.
// For 5 s at most, because a rank that was killed, or ended early, never reports that it has left.
void LeaveStores(const absl::Status& status);

// Puts the text of its cause in front of a peer's error, unless the error has it already. Pure.
absl::Status WithCause(const absl::Status& peer_error, const std::string& rank,
                       const std::string& message);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
