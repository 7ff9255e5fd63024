#ifndef DDPRUN_WORKER_ENV_START_REQUEST_H_
#define DDPRUN_WORKER_ENV_START_REQUEST_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::worker {

// The keeper puts variables with these names at the end of the environment of a process that it
// starts ahead (launcher/keeper/parked_process.h). From the first of them on there is room for the
// worker's further variables.
inline constexpr char kRoomBegins[] = "DDPRUN_WARM=";
// Identifies a process' worker to the keeper, which reads it in /proc.
inline constexpr char kWorkerTag[] = "DDPRUN_WORKER_TAG=";

// Makes `variables` ("NAME=value") the environment of this process: for getenv(3), for main()'s
// third argument, for the programs that it runs, and, as far as there is room, in
// /proc/PID/environ. Strings to which libraries of this process may have pointers aren't moved.
// `began`: the array that the kernel gave this process. Requires: one thread.
void SetEnvironment(char** began, const std::vector<std::string>& variables);

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
