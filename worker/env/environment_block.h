#ifndef DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_
#define DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_

#include <string>
#include <vector>

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

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_
