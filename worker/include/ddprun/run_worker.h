#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_

#include <functional>

#include "absl/status/status.h"

namespace ddprun {

// The body of a worker's main(): runs `body` and answers the exit code, 0 or 1.
//
// An error, returned or thrown, goes to stderr as one line and, with its stack as far as LibTorch
// recorded one, to the file TORCHELASTIC_ERROR_FILE names, as Python's @record writes it. Errors
// that a peer caused begin with "PeerError: "; the launcher ranks them below real causes. They have
// the words of the rank that failed first, if it could tell them (a killed one can't).
// Exceptions that LibTorch throws on threads of its own, which end the process, are reported too.
//
// Also sets LibTorch's log up (TORCH_CPP_LOG_LEVEL) and ddprun's (LOGLEVEL).
int RunWorker(int argc, char** argv, const std::function<absl::Status(int, char**)>& body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_
