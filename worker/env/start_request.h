#ifndef DDPRUN_WORKER_ENV_START_REQUEST_H_
#define DDPRUN_WORKER_ENV_START_REQUEST_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::worker {

// A request to a process that was started ahead, to become a worker.
// launcher/keeper/parked_process.h has the keeper's side and the protocol.
struct StartRequest {
  pid_t keeper = 0;                      // the parent of all workers
  std::vector<uint32_t> cpus;            // empty = the process' own
  std::string streams;                   // letters of "ioe", in this order: which streams follow
  std::vector<std::string> environment;  // "NAME=value", complete
};

// Returns nullopt if `text` is no such request.
std::optional<StartRequest> ParseStartRequest(absl::string_view text);

// Returns `wanted` with the changes that this program's libraries made to the environment while
// they were loaded: the differences between `began` and `now`. All are "NAME=value"; if a name
// comes twice, the first one counts, as for getenv(3).
std::vector<std::string> WithChanges(const std::vector<std::string>& began,
                                     const std::vector<std::string>& now,
                                     std::vector<std::string> wanted);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_START_REQUEST_H_
