#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"

namespace ddprun {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// What writes to stderr. Never destroyed, as below.
class Writer {
 public:
  static Writer& Get() {
    static auto* const writer = new Writer();
    return *writer;
  }

  void Set(std::function<void(absl::string_view)> write) {
    const std::lock_guard lock(mutex_);
    write_ = std::move(write);
  }

  // One write(2), so that lines of several agents on one console stay whole.
  void Write(absl::string_view lines) {
    const std::lock_guard lock(mutex_);
    if (write_) return write_(lines);
    WriteAll(2, lines).IgnoreError();  // nowhere is left to report it
  }

 private:
  std::mutex mutex_;
  std::function<void(absl::string_view)> write_;
};

class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    base_sink::formatter_->format(message, line);
    Writer::Get().Write({line.data(), line.size()});
  }
  void flush_() override {}
};

// Somebody has chosen a level, to read or search a log. Without that, a warning is for a person at
// a terminal, and looks like all other messages.
std::atomic<bool> for_a_log{false};

// Never destroyed: threads of gRPC still log while a process exits.
spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("ddprun", std::make_shared<StderrSink>());
    made->set_pattern("%L%m%d %H:%M:%S.%f %P ddprun] %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(absl::string_view name) {
  for_a_log = !name.empty();
  const std::string upper = absl::AsciiStrToUpper(name);
  LogLevel level = LogLevel::kWarning;
  if (upper == "DEBUG") level = LogLevel::kDebug;
  if (upper == "INFO") level = LogLevel::kInfo;
  if (upper == "ERROR" || upper == "CRITICAL") level = LogLevel::kError;
  Logger().set_level(ToSpdlog(level));
}

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void Log(LogLevel level, absl::string_view message) {
  if (!LogEnabled(level)) return;
  if (!for_a_log) {
    return Notify(absl::StrCat(level == LogLevel::kError ? "error: " : "warning: ", message));
  }
  for (const absl::string_view line : absl::StrSplit(message, '\n')) {
    Logger().log(ToSpdlog(level), "{}", std::string(line));
  }
}

void SetLogWriter(std::function<void(absl::string_view lines)> write) {
  Writer::Get().Set(std::move(write));
}

void NotifyLines(absl::string_view lines) { Writer::Get().Write(lines); }

void Notify(absl::string_view message) {
  Writer::Get().Write(absl::StrCat("ddprun: ", message, "\n"));
}

}  // namespace ddprun
