#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_

#include <functional>

#include "absl/status/status.h"

namespace ddprun {

// The body of a worker's main(): runs `body` and returns the exit code, 0 or 1.
//
// An error, returned or thrown, is printed to stderr as one line and, with its stack if LibTorch
// recorded one, written to the file that TORCHELASTIC_ERROR_FILE names, in the format of Python's
// @record. Errors that a peer caused begin with "PeerError: ", have the error text of the rank that
// failed first, if that rank could send it (a killed one can't), and rank below real causes in the
// launcher. Exceptions of LibTorch's own threads, which end the process, are reported too.
//
// Also sets up the logs of LibTorch (TORCH_CPP_LOG_LEVEL) and ddprun (LOGLEVEL).
int RunWorker(int argc, char** argv, const std::function<absl::Status(int, char**)>& body);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_RUN_WORKER_H_
