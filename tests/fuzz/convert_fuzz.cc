#include "tests/fuzz/convert_fuzz.h"

#include <google/protobuf/stubs/logging.h>

#include <string>

#include "base/check.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

template <typename Proto>
bool Convert(absl::string_view bytes) {
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const auto message = FromProto(proto);
  if (!message.ok()) {
    DDPRUN_CHECK(!message.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string once = ToProto(*message).SerializeAsString();
  Proto again;
  DDPRUN_CHECK(again.ParseFromString(once), "our own bytes do not parse");
  DDPRUN_CHECK(once.size() <= kMessageBytesMax, "our own message is too large");
  const auto back = FromProto(again);
  DDPRUN_CHECK(back.ok(), back.status().ToString());
  DDPRUN_CHECK(ToProto(*back).SerializeAsString() == once, again.DebugString());
  return true;
}

}  // namespace

int ConvertBytes(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // it tells of each bad UTF-8
  return (Convert<v1::AgentMessage>(bytes) ? 1 : 0) + (Convert<v1::ServiceMessage>(bytes) ? 1 : 0);
}

}  // namespace ddprun::rendezvous
