#ifndef DDPRUN_LAUNCHER_OUTPUT_LINE_TAIL_H_
#define DDPRUN_LAUNCHER_OUTPUT_LINE_TAIL_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The last lines of a stream: 20 at most, out of its last 4 KiB.
class LineTail {
 public:
  void Add(absl::string_view bytes);
  // Oldest first, each with its newline. A line with progress frames ("10%\r20%\r") is cut to its
  // last frame; a line that began more than 4 KiB ago is left out unless it is the only one.
  std::string Lines() const;

 private:
  static constexpr size_t kBytesMax = 4096;
  static constexpr size_t kLinesMax = 20;

  std::string bytes_;  // the end of the stream, at most 2 * kBytesMax
  bool cut_ = false;   // something was dropped before bytes_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_LINE_TAIL_H_
