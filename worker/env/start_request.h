#ifndef DDPRUN_WORKER_ENV_START_REQUEST_H_
#define DDPRUN_WORKER_ENV_START_REQUEST_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::worker {

// What a process that was started ahead is asked to become. The keeper's side of it, and what goes
// over the wire, is in launcher/keeper/parked_process.h.
struct StartRequest {
  pid_t keeper = 0;                      // the parent of all workers
  std::vector<uint32_t> cpus;            // empty = as they are
  std::string streams;                   // of "ioe", in this order: which descriptors follow
  std::vector<std::string> environment;  // "NAME=value", complete
};

// None: it is no such request.
std::optional<StartRequest> ParseStartRequest(absl::string_view text);

// `wanted` as it would be after the libraries of this program were loaded with it: with what they
// have changed of `began` to make it `now`. All are "NAME=value"; of a name that comes twice the
// first counts, as for getenv(3).
std::vector<std::string> WithChanges(const std::vector<std::string>& began,
                                     const std::vector<std::string>& now,
                                     std::vector<std::string> wanted);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_START_REQUEST_H_
