#ifndef DDPRUN_TOOLS_CHAOS_TIMELINE_READER_H_
#define DDPRUN_TOOLS_CHAOS_TIMELINE_READER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "tools/chaos/core/chaos_cost.h"

namespace ddprun::launcher {

// Which of a line's two times counts: `t` within one machine, `wall` between machines.
enum class LineClock { kMonotonic, kWall };

// One line of an event log (base/event_log.h). Numbers and booleans become texts.
// nullopt = not such a line; accepts any bytes. Threads: any.
std::optional<TimelineLine> ParseTimelineLine(absl::string_view text, LineClock clock);

// Reads lines as they are appended to an event log.
// Threads: the loop's.
class TimelineReader {
 public:
  // Begins at the file's end; the file is made if it isn't there. `on_more` is called on the loop
  // when there may be new lines.
  // Errors: errno of open(2), inotify(7) with the path.
  static absl::StatusOr<std::unique_ptr<TimelineReader>> Follow(EventLoop* loop,
                                                                const std::string& path,
                                                                std::function<void()> on_more);

  // The whole lines that came since the last call. Lines that can't be read are left out.
  std::vector<TimelineLine> Take();

 private:
  TimelineReader() = default;

  Fd file_;
  Fd inotify_;
  std::string rest_;  // the beginning of a line
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_TIMELINE_READER_H_
