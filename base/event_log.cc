#include "base/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errno_status.h"

namespace ddprun {

absl::StatusOr<EventLog> EventLog::Open(const std::string& path, std::string who) {
  EventLog log;
  log.fd_.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open event log '", path, "'"));
  log.who_ = std::move(who);
  return log;
}

void EventLog::Write(Instant now, const std::string& event, const nlohmann::json& fields) const {
  if (!enabled()) return;
  nlohmann::ordered_json line = {{"t", static_cast<double>(now.nanoseconds()) / 1e9},
                                 {"wall", absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())},
                                 {"pid", getpid()},
                                 {"who", who_},
                                 {"event", event}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  // Worker output may hold any bytes; what is no UTF-8 becomes U+FFFD.
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  WriteAll(fd_.get(), absl::StrCat(text, "\n")).IgnoreError();  // see the contract
}

}  // namespace ddprun
