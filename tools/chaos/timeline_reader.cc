#include "tools/chaos/timeline_reader.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"

namespace ddprun::launcher {
namespace {

// Lines of an event log are shorter; a longer one is from another file.
constexpr size_t kTimelineLineMax = size_t{1} << 20;
constexpr double kTimelineSecondsMax = 9e9;  // of int64 nanoseconds

std::string TextOf(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::optional<TimelineLine> ParseTimelineLine(absl::string_view text, LineClock clock) {
  const nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  TimelineLine line;
  double seconds = NAN;
  for (const auto& [key, value] : json.items()) {
    if (key == (clock == LineClock::kWall ? "wall" : "t")) {
      if (value.is_number()) seconds = value.get<double>();
    } else if (key == "who") {
      line.who = TextOf(value);
    } else if (key == "event") {
      line.event = TextOf(value);
    } else if (key != "t" && key != "wall") {
      line.fields[key] = TextOf(value);
    }
  }
  if (!(std::abs(seconds) <= kTimelineSecondsMax) || line.event.empty()) return std::nullopt;
  line.at = Instant::FromNanoseconds(static_cast<int64_t>(seconds * 1e9));
  return line;
}

absl::StatusOr<std::unique_ptr<TimelineReader>> TimelineReader::Follow(
    EventLoop* loop, const std::string& path, std::function<void()> on_more) {
  std::unique_ptr<TimelineReader> reader(new TimelineReader());
  reader->file_.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!reader->file_.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  lseek(reader->file_.get(), 0, SEEK_END);
  reader->inotify_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!reader->inotify_.valid() ||
      inotify_add_watch(reader->inotify_.get(), path.c_str(), IN_MODIFY) < 0) {
    return ErrnoStatus(errno, absl::StrCat("watch '", path, "'"));
  }
  TimelineReader* self = reader.get();
  reader->watch_ =
      std::make_unique<FdWatch>(loop, reader->inotify_.get(), [self, call = std::move(on_more)] {
        char events[4096];
        while (read(self->inotify_.get(), events, sizeof(events)) > 0) {
        }
        call();
      });
  return reader;
}

std::vector<TimelineLine> TimelineReader::Take() {
  std::vector<TimelineLine> lines;
  char bytes[65536];
  for (;;) {
    const ssize_t n = read(file_.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    rest_.append(bytes, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      auto line = ParseTimelineLine(absl::string_view(rest_).substr(begin, end - begin),
                                    LineClock::kMonotonic);
      if (line.has_value()) lines.push_back(*std::move(line));
      begin = end + 1;
    }
    rest_.erase(0, begin);
    if (rest_.size() > kTimelineLineMax) rest_.clear();
  }
  return lines;
}

}  // namespace ddprun::launcher
