#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_

#include <string>

#include <google/protobuf/message.h>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

enum class JsonLayout { kOneLine, kIndented };

// A status as JSON with the proto's names; absent numbers and texts have their defaults. `ddprun
// status -o json` prints it, and the page reads it. Numbers are JSON numbers, except for `term`,
// which is a string because it has more digits than JavaScript keeps. Each age has a wall-clock
// time beside it ("began_ms_ago", "began_at": "2026-01-02T12:04:05.123Z").
// Params: now: when the status was asked for. Threads: any.
std::string StatusJson(const google::protobuf::Message& status, absl::Time now,
                       JsonLayout layout = JsonLayout::kOneLine);

// "2026-01-02T12:04:05.123Z".
std::string WallTimeText(absl::Time time);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
