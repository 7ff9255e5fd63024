#ifndef DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
#define DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"

namespace ddprun::worker {

// Where this process' contexts can tell the other ranks why it failed, and read why they did.
// Threads of all: main() only.
void AddFailureNotice(c10::intrusive_ptr<c10d::Store> store, uint32_t rank);

// This process is about to end with `status`. An error of its own is told to the other ranks. One
// that a peer caused is returned with the peer's own words, which a broken connection doesn't know;
// waits up to a third of a second for them, as a peer may break connections before it can tell.
// A process that is killed tells nothing.
absl::Status ExchangeFailures(const absl::Status& status);

// A peer's error with the words of its cause in front; unchanged where it has them already. Pure.
absl::Status WithCause(const absl::Status& peer_error, const std::string& rank,
                       const std::string& message);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_FAILURE_NOTICE_H_
