#ifndef DDPRUN_TOOLS_WATCH_EVENT_TEXT_H_
#define DDPRUN_TOOLS_WATCH_EVENT_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

enum class EventTime { kOfDay, kWithDate };

// How `ddprun events` prints an event: number, time, name and fields; one line, ended.
std::string EventText(const rendezvous::v1::JobEvent& event, absl::TimeZone zone,
                      EventTime form = EventTime::kOfDay);

// The same as a line of JSON: the service's line of the event log (docs/EVENTS.md) with "number".
std::string EventJson(const std::string& run_id, const rendezvous::v1::JobEvent& event);

// A line about events between two numbers, which the service had dropped before they were shown.
std::string MissedText(uint64_t last, uint64_t next);

// A sentence if the event says that the node has left the job, or that the job has ended; else "".
std::string HowItLeft(const rendezvous::v1::JobEvent& event, const std::string& node_id);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_EVENT_TEXT_H_
