#ifndef DDPRUN_BASE_THREAD_H_
#define DDPRUN_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace ddprun {

// A thread that runs `body`, to be joined or detached. Error: kResourceExhausted where there can be
// no more of them (pthread_create(3): a limit on processes, or no memory for a stack), for which
// std::thread throws; the message says what the thread was for. Threads: any.
absl::StatusOr<std::thread> StartThread(const char* what, std::function<void()> body);

}  // namespace ddprun

#endif  // DDPRUN_BASE_THREAD_H_
