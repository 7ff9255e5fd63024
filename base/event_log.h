#ifndef DDPRUN_BASE_EVENT_LOG_H_
#define DDPRUN_BASE_EVENT_LOG_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/instant.h"

namespace ddprun {

// The machine-readable timeline of one process: JSON lines appended to a file that agents, services
// and tools may share (one O_APPEND write(2) a line, so lines never mix).
//
// Each line has `t` (CLOCK_MONOTONIC seconds, comparable on one machine), `wall` (epoch seconds),
// `pid`, `who` ("agent:<node>", "service" or "chaos:<host>"), `event` (snake_case) and the event's
// fields. docs/EVENTS.md lists the events. Threads: any.
class EventLog {
 public:
  // Drops everything.
  EventLog() = default;
  // Errors: the errno of open(2), with the path.
  static absl::StatusOr<EventLog> Open(const std::string& path, std::string who);

  // Appends one line; a failed write is dropped, because a timeline must not stop a job.
  void Write(Instant now, const std::string& event, const nlohmann::json& fields = {}) const;
  bool enabled() const { return fd_.valid(); }

 private:
  Fd fd_;
  std::string who_;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_EVENT_LOG_H_
