#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_TIMER_REQUEST_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_TIMER_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// One line of the watchdog's FIFO, as torch's FileTimerClient writes it.
struct TimerRequest {
  uint32_t pid = 0;
  std::string scope;
  double expiration = 0;  // seconds since the epoch; negative = release the timer
  int signal = 9;         // 0 = none

  bool is_release() const { return expiration < 0; }
};

// The longest line: what a pipe takes in one piece (PIPE_BUF).
inline constexpr size_t kTimerLineBytesMax = 4096;

// Reads {"version":1,"pid":…,"scope_id":…,"expiration_time":…,"signal":…}; version and signal may
// be missing, a negative signal is none. Errors: INVALID_ARGUMENT, with what is wrong. Any bytes
// are fine. Threads: any.
absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_TIMER_REQUEST_H_
