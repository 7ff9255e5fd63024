#include "worker/metrics/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::worker {
namespace {

constexpr int64_t kBarCells = 20;

std::optional<double> ValueOf(const ConsoleFacts& facts, absl::string_view name) {
  for (const auto& [key, value] : facts.values) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string SecondsText(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.3g s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g us", seconds * 1e6);
}

std::string StepsText(const ConsoleFacts& facts) {
  return facts.total_steps > 0 ? absl::StrCat(facts.step, "/", facts.total_steps)
                               : absl::StrCat(facts.step);
}

int64_t Percent(const ConsoleFacts& facts) {
  return std::clamp<int64_t>(facts.step * 100 / facts.total_steps, 0, 100);
}

// "step 25.1 ms (data 0.3 ms)".
std::string StepTimeText(const ConsoleFacts& facts) {
  const std::optional<double> step = ValueOf(facts, "step_seconds");
  if (!step.has_value()) return "";
  std::string text = absl::StrCat("step ", SecondsText(*step));
  const std::optional<double> data = ValueOf(facts, "data_seconds");
  if (data.value_or(0) > 0) absl::StrAppend(&text, " (data ", SecondsText(*data), ")");
  return text;
}

void AddBrief(const ConsoleFacts& facts, std::vector<std::string>& parts) {
  if (const auto loss = ValueOf(facts, "loss"))
    parts.push_back(absl::StrFormat("loss %.4g", *loss));
  if (const auto rate = ValueOf(facts, "learning_rate")) {
    parts.push_back(absl::StrFormat("lr %.3g", *rate));
  }
  if (const auto speed = ValueOf(facts, "samples_per_second")) {
    parts.push_back(*speed >= 100 ? absl::StrFormat("%.0f samples/s", *speed)
                                  : absl::StrFormat("%.3g samples/s", *speed));
  }
}

void AddRest(const ConsoleFacts& facts, std::vector<std::string>& parts) {
  if (std::string text = StepTimeText(facts); !text.empty()) parts.push_back(std::move(text));
  if (const auto norm = ValueOf(facts, "gradient_norm")) {
    parts.push_back(absl::StrFormat("grad %.3g", *norm));
  }
  if (const auto bytes = ValueOf(facts, "gpu_memory_bytes")) {
    parts.push_back(absl::StrCat("GPU ", BytesText(*bytes)));
  }
  if (const auto bytes = ValueOf(facts, "host_memory_bytes")) {
    parts.push_back(absl::StrCat("memory ", BytesText(*bytes)));
  }
  if (const auto overlap = ValueOf(facts, "communication_overlap")) {
    parts.push_back(absl::StrFormat("overlap %.0f%%", *overlap * 100));
  }
}

std::string Bar(const ConsoleFacts& facts) {
  const int64_t full = Percent(facts) * kBarCells / 100;
  const int64_t head = full < kBarCells ? 1 : 0;
  const int64_t rest = kBarCells - full - head;
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '='), head == 1 ? ">" : "",
                      std::string(static_cast<size_t>(rest), ' '), "]");
}

}  // namespace

std::string ClockText(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(absl::ToInt64Seconds(duration), 0);
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (hours == 0) return absl::StrFormat("%d:%02d", minutes, seconds % 60);
  if (hours < 24) return absl::StrFormat("%d:%02d:%02d", hours, minutes % 60, seconds % 60);
  return absl::StrFormat("%dd %02d:%02d:%02d", hours / 24, hours % 24, minutes % 60, seconds % 60);
}

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return bytes >= 10 || unit == 0 ? absl::StrFormat("%.0f %s", bytes, kUnits[unit])
                                  : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string ConsoleLine(const ConsoleFacts& facts) {
  std::vector<std::string> parts = {absl::StrCat("step ", StepsText(facts))};
  if (facts.total_steps > 0) absl::StrAppend(&parts[0], " (", Percent(facts), "%)");
  AddBrief(facts, parts);
  AddRest(facts, parts);
  parts.push_back(ClockText(facts.elapsed) + " gone");
  if (facts.left.has_value()) absl::StrAppend(&parts.back(), ", ", ClockText(*facts.left), " left");
  return absl::StrJoin(parts, "  ");
}

std::string ProgressBar(const ConsoleFacts& facts, size_t columns) {
  std::vector<std::string> parts;
  if (facts.total_steps > 0) {
    parts.push_back(absl::StrFormat("%3d%% %s %s", Percent(facts), Bar(facts), StepsText(facts)));
  } else {
    parts.push_back(absl::StrCat(StepsText(facts), " steps"));
  }
  parts.push_back(ClockText(facts.elapsed));
  if (facts.left.has_value()) absl::StrAppend(&parts.back(), "<", ClockText(*facts.left));
  AddBrief(facts, parts);
  AddRest(facts, parts);
  std::string text;
  for (const std::string& part : parts) {
    const std::string more = absl::StrCat(text.empty() ? "" : "  ", part);
    if (text.size() + more.size() > columns) break;
    text += more;
  }
  return text.empty() ? parts[0].substr(0, columns) : text;
}

namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr size_t kUsualColumns = 80;
constexpr const char* kEraseRestOfLine = "\x1b[K";  // ECMA-48, EL

size_t TerminalColumns(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

// A console that is gone doesn't end training.
void Print(int fd, const std::string& text) { WriteAll(fd, text).IgnoreError(); }

}  // namespace

Console::Console(ConsoleKind kind, int fd, absl::Duration line_interval)
    : kind_(kind), fd_(fd), line_interval_(line_interval) {}

Console::~Console() {
  if (cursor_in_bar_) Print(fd_, "\n");
}

void Console::Step(const ConsoleFacts& facts, bool new_record, Instant now) {
  const bool bar = kind_ == ConsoleKind::kProgressBar;
  if (kind_ == ConsoleKind::kNone || (!bar && !new_record)) return;
  const bool last = facts.total_steps > 0 && facts.step >= facts.total_steps;
  const absl::Duration interval = bar ? kRedrawInterval : line_interval_;
  if (!last && shown_.has_value() && now - *shown_ < interval) return;
  shown_ = now;
  if (!bar) return Print(fd_, ConsoleLine(facts) + "\n");
  // A terminal wraps what reaches its last column.
  const std::string text = ProgressBar(facts, TerminalColumns(fd_) - 1);
  Print(fd_, absl::StrCat("\r", text, kEraseRestOfLine, last ? "\n" : ""));
  cursor_in_bar_ = !last;
}

ConsoleKind ConsoleKindFor(int fd) {
  return isatty(fd) == 1 ? ConsoleKind::kProgressBar : ConsoleKind::kLines;
}

}  // namespace ddprun::worker
