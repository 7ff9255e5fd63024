#ifndef DDPRUN_BASE_LOG_H_
#define DDPRUN_BASE_LOG_H_

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sets the least level that is printed, from the value of LOGLEVEL ("DEBUG", "INFO", "WARNING",
// "ERROR", any case); anything else, and none, mean WARNING, as torchrun's.
void SetLogLevel(absl::string_view name);

// True when a message of this level is printed; to skip building it.
bool LogEnabled(LogLevel level);

// Prints one message to stderr: where SetLogLevel() got a name, each of its lines as
// "<L><MMDD> <HH:MM:SS.micros> <pid> ddprun] text" (torchrun's glog style);
// else "ddprun: warning: text". Threads: any.
void Log(LogLevel level, absl::string_view message);

// From now on `write` prints whole lines in place of this module, for a process whose only thread
// may not block on a console. Null: this module prints again. Threads: `write` is called on any
// thread, one call at a time.
void SetLogWriter(std::function<void(absl::string_view lines)> write);

// Prints lines to stderr as they are.
void NotifyLines(absl::string_view lines);

// Prints "ddprun: message" to stderr, whatever the level: for what a user must see.
void Notify(absl::string_view message);

}  // namespace ddprun

#endif  // DDPRUN_BASE_LOG_H_
