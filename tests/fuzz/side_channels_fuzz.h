#ifndef DDPRUN_TESTS_FUZZ_SIDE_CHANNELS_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_SIDE_CHANNELS_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What the bytes came to.
struct SideChannelsFuzzResult {
  bool is_timer_request = false;
  bool is_answered = false;  // as a health check
};

// Reads the bytes as a line of the watchdog's FIFO and as an HTTP request to the health port, and
// aborts when a result is beyond its bounds.
SideChannelsFuzzResult FuzzSideChannels(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_SIDE_CHANNELS_FUZZ_H_
