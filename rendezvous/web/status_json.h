#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_

#include <google/protobuf/message_lite.h>
#include <google/protobuf/repeated_field.h>

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

namespace v1 {
class GetStatusReply;
}

enum class JsonLayout { kOneLine, kIndented };

// A status as JSON with the proto's names; absent numbers and texts have their defaults. `ddprun
// status -o json` prints it, and the page reads it. Numbers are JSON numbers, except for `term`,
// which is a string because it has more digits than JavaScript keeps. Each age has a wall-clock
// time beside it ("began_ms_ago", "began_at": "2026-01-02T12:04:05.123Z").
// Params: now: when the status was asked for. Threads: any.
std::string StatusJson(const v1::GetStatusReply& status, absl::Time now,
                       JsonLayout layout = JsonLayout::kOneLine);

// "2026-01-02T12:04:05.123Z".
std::string WallTimeText(absl::Time time);

// Makes such an object of a message that has a VisitFields() (cmake/message_fields.py).
class MessageJson {
 public:
  using Json = nlohmann::ordered_json;

  template <class Message>
  static Json Of(const Message& message, absl::Time now) {
    MessageJson to(now);
    VisitFields(message, &to);
    return std::move(to.json_);
  }

  // What VisitFields() calls for each field.
  void Add(const char* name, uint64_t value);
  void Add(const char* name, uint32_t value) { json_[name] = value; }
  void Add(const char* name, bool value) { json_[name] = value; }
  void Add(const char* name, double value) { json_[name] = value; }
  void Add(const char* name, const std::string& value) { json_[name] = value; }
  template <std::derived_from<google::protobuf::MessageLite> Message>
  void Add(const char* name, const Message& message) {
    json_[name] = Of(message, now_);
  }
  template <class Item>
  void Add(const char* name, const google::protobuf::RepeatedPtrField<Item>& items) {
    Json list = Json::array();
    for (const Item& item : items) {
      if constexpr (std::same_as<Item, std::string>) {
        list.push_back(item);
      } else {
        list.push_back(Of(item, now_));
      }
    }
    json_[name] = std::move(list);
  }

 private:
  explicit MessageJson(absl::Time now) : now_(now) {}

  const absl::Time now_;
  Json json_ = Json::object();
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
