#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

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

// Never destroyed: threads of gRPC still log while a process exits.
spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("ddprun", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%L%m%d %H:%M:%S.%f %P ddprun] %v");
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(absl::string_view name) {
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
  for (const absl::string_view line : absl::StrSplit(message, '\n')) {
    Logger().log(ToSpdlog(level), "{}", std::string(line));
  }
}

void Tell(absl::string_view message) {
  const std::string line = absl::StrCat("ddprun: ", message, "\n");
  // One write(2), so that lines of several agents on one console stay whole.
  WriteAll(2, line).IgnoreError();  // nowhere is left to report it
}

}  // namespace ddprun
