#include "tools/watch/event_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::launcher {
namespace {

using rendezvous::v1::EventField;
using rendezvous::v1::JobEvent;

std::string FieldOf(const JobEvent& event, const std::string& name) {
  for (const EventField& field : event.fields()) {
    if (field.name() == name) return field.value();
  }
  return "";
}

std::string FieldText(const EventField& field) {
  const bool plain =
      !field.value().empty() && field.value().find_first_of(" \"=") == std::string::npos;
  return plain ? absl::StrCat("  ", field.name(), "=", field.value())
               : absl::StrCat("  ", field.name(), "=\"", field.value(), "\"");
}

}  // namespace

std::string EventText(const JobEvent& event, absl::TimeZone zone, EventTime form) {
  const absl::Time time = absl::FromUnixMillis(static_cast<int64_t>(event.wall_time_ms()));
  const char* const format = form == EventTime::kWithDate ? "%Y-%m-%d %H:%M:%E3S%Ez" : "%H:%M:%E3S";
  std::string text = absl::StrFormat("%5d  %s  %-16s", event.number(),
                                     absl::FormatTime(format, time, zone), event.event());
  for (const EventField& field : event.fields()) absl::StrAppend(&text, FieldText(field));
  return absl::StrCat(text, "\n");
}

std::string EventJson(const std::string& run_id, const JobEvent& event) {
  nlohmann::ordered_json line = {{"number", event.number()},
                                 {"t", static_cast<double>(event.monotonic_us()) / 1e6},
                                 {"wall", static_cast<double>(event.wall_time_ms()) / 1e3},
                                 {"who", "service"},
                                 {"event", event.event()},
                                 {"run_id", run_id}};
  for (const EventField& field : event.fields()) line[field.name()] = field.value();
  return absl::StrCat(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

std::string MissedText(uint64_t last, uint64_t next) {
  return absl::StrCat("warning: the service has forgotten the events ", last + 1, " to ", next - 1);
}

std::string HowItLeft(const JobEvent& event, const std::string& node_id) {
  if (event.event() == "verdict") {
    return absl::StrCat("the job has ended (", FieldOf(event, "outcome"),
                        "): ", FieldOf(event, "reason"));
  }
  if (FieldOf(event, "node") != node_id) return "";
  if (event.event() == "node_left") {
    return absl::StrCat("node ", node_id, " has left: ", FieldOf(event, "why"));
  }
  if (event.event() != "node_lost") return "";
  return absl::StrCat("node ", node_id, " is lost: ", FieldOf(event, "why"));
}

}  // namespace ddprun::launcher
