#include "rendezvous/web/status_json.h"

#include <google/protobuf/util/json_util.h>

namespace ddprun::rendezvous {

absl::StatusOr<std::string> StatusJson(const v1::GetStatusReply& reply) {
  google::protobuf::util::JsonPrintOptions format;
  format.preserve_proto_field_names = true;
  format.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(reply, &text, format);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return text;
}

}  // namespace ddprun::rendezvous
