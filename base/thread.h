#ifndef DDPRUN_BASE_THREAD_H_
#define DDPRUN_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// Starts a thread that runs `body`, to be joined or detached. Error: kResourceExhausted if no more
// threads are possible (pthread_create(3): a limit on processes, or no memory for a stack), where
// std::thread would throw. The message names what the thread was for. Threads: any.
absl::StatusOr<std::thread> StartThread(const char* what, std::function<void()> body);

// Whether `count` more threads can exist at once. Libraries that get none go on without them, and
// their failure then looks like the network's. Error: as for StartThread. Threads: any.
absl::Status CheckThreads(int count);

}  // namespace ddprun

#endif  // DDPRUN_BASE_THREAD_H_
