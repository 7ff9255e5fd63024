#include "rendezvous/web/status_json.h"

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

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

Json ToJson(const Message& message, absl::Time now);

// Requires: the field has a type that our statuses use.
Json ValueOf(const Message& message, const FieldDescriptor& field, absl::Time now) {
  const Reflection& get = *message.GetReflection();
  const auto type = field.cpp_type();
  if (type == FieldDescriptor::CPPTYPE_UINT32) return get.GetUInt32(message, &field);
  if (type == FieldDescriptor::CPPTYPE_BOOL) return get.GetBool(message, &field);
  if (type == FieldDescriptor::CPPTYPE_DOUBLE) return get.GetDouble(message, &field);
  if (type == FieldDescriptor::CPPTYPE_STRING) return get.GetString(message, &field);
  if (type == FieldDescriptor::CPPTYPE_MESSAGE) return ToJson(get.GetMessage(message, &field), now);
  const uint64_t number = get.GetUInt64(message, &field);
  return field.name() == kTermField ? Json(absl::StrCat(number)) : Json(number);
}

Json ListOf(const Message& message, const FieldDescriptor& field, absl::Time now) {
  const Reflection& get = *message.GetReflection();
  Json list = Json::array();
  for (int i = 0; i < get.FieldSize(message, &field); ++i) {
    list.push_back(field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                       ? ToJson(get.GetRepeatedMessage(message, &field, i), now)
                       : Json(get.GetRepeatedString(message, &field, i)));
  }
  return list;
}

void AddWallTime(const Message& message, const FieldDescriptor& field, absl::Time now, Json* json) {
  for (const RelativeTime& relative : kRelativeTimes) {
    if (field.name() != relative.field) continue;
    // protobuf aborts when a field is read as another type.
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_UINT64) continue;
    const auto ms = static_cast<int64_t>(message.GetReflection()->GetUInt64(message, &field));
    (*json)[relative.at] = WallTimeText(now + absl::Milliseconds(relative.sign * ms));
  }
}

Json ToJson(const Message& message, absl::Time now) {
  Json json = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated()) {
      json[field.name()] = ListOf(message, field, now);
    } else if (!field.has_presence() || message.GetReflection()->HasField(message, &field)) {
      json[field.name()] = ValueOf(message, field, now);
      AddWallTime(message, field, now, &json);
    }
  }
  return json;
}

}  // namespace

std::string StatusJson(const Message& status, absl::Time now, JsonLayout layout) {
  return ToJson(status, now)
      .dump(layout == JsonLayout::kIndented ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string WallTimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

}  // namespace ddprun::rendezvous
