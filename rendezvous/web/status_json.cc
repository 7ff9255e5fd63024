#include "rendezvous/web/status_json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/web/status_fields.h"

namespace ddprun::rendezvous {
namespace {

using Json = MessageJson::Json;

constexpr absl::string_view kTermField = "term";

// A field with a time relative to now, and the name of its wall-clock time.
struct RelativeTime {
  absl::string_view field;
  const char* at;
  int sign;  // -1: ago
};
constexpr RelativeTime kRelativeTimes[] = {
    {"age_ms", "began_at", -1},
    {"began_ms_ago", "began_at", -1},
    {"ended_ms_ago", "ended_at", -1},
    {"silent_ms", "heard_at", -1},
    {"progress_age_ms", "progress_at", -1},
    {"gpus_age_ms", "gpus_at", -1},
    {"for_ms", "lost_at", -1},
    {"gives_up_in_ms", "gives_up_at", 1},
};

}  // namespace

void MessageJson::Add(const char* name, uint64_t value) {
  json_[name] = name == kTermField ? Json(absl::StrCat(value)) : Json(value);
  for (const RelativeTime& relative : kRelativeTimes) {
    if (name != relative.field) continue;
    const auto ms = relative.sign * static_cast<int64_t>(value);
    json_[relative.at] = WallTimeText(now_ + absl::Milliseconds(ms));
  }
}

std::string StatusJson(const v1::GetStatusReply& status, absl::Time now, JsonLayout layout) {
  return MessageJson::Of(status, now)
      .dump(layout == JsonLayout::kIndented ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string WallTimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

}  // namespace ddprun::rendezvous
