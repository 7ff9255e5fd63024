#ifndef DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_
#define DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_

#include <string>
#include <vector>

namespace ddprun::worker {

// Variables that whoever starts a process ahead puts at the end of its environment: from the first
// of them on there is room for what the worker has besides (launcher/keeper/parked_process.h).
inline constexpr char kRoomBegins[] = "DDPRUN_WARM=";
// The keeper knows by it whose a process is, and reads it from outside.
inline constexpr char kWorkerTag[] = "DDPRUN_WORKER_TAG=";

// Makes `variables` ("NAME=value") the environment of this process: for getenv(3), for main()'s
// third argument, for the programs that it runs, and for those who read /proc/PID/environ, as far
// as there is room. What the libraries of this process have pointers to stays where it is.
// `began`: the array that the kernel gave this process. Requires: one thread.
void SetEnvironment(char** began, const std::vector<std::string>& variables);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_ENVIRONMENT_BLOCK_H_
