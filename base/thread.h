#ifndef DDPRUN_BASE_THREAD_H_
#define DDPRUN_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun {

// A thread that runs `body`, to be joined or detached. Error: kResourceExhausted where there can be
// no more of them (pthread_create(3): a limit on processes, or no memory for a stack), for which
// std::thread throws; the message says what the thread was for. Threads: any.
absl::StatusOr<std::thread> StartThread(const char* what, std::function<void()> body);

// Whether there can be `count` more threads at once: libraries that get none go on without, and
// what they can't do then looks like the network's fault. Error: as above. Threads: any.
absl::Status CheckThreads(int count);

}  // namespace ddprun

#endif  // DDPRUN_BASE_THREAD_H_
