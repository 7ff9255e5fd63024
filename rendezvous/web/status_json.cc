#include "rendezvous/web/status_json.h"

#include <google/protobuf/util/json_util.h>

namespace ddprun::rendezvous {

absl::StatusOr<std::string> StatusJson(const google::protobuf::Message& status) {
  google::protobuf::util::JsonPrintOptions format;
  format.preserve_proto_field_names = true;
  format.always_print_primitive_fields = true;
  std::string text;
  const auto done = google::protobuf::util::MessageToJsonString(status, &text, format);
  if (!done.ok()) return absl::InternalError(done.ToString());
  return text;
}

}  // namespace ddprun::rendezvous
