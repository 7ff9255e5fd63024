#include "tests/fuzz/journal_fuzz.h"

#include <google/protobuf/stubs/logging.h>

#include <string>

#include "base/check.h"
#include "rendezvous/journal/record_proto.h"

namespace ddprun::rendezvous {

bool ReadRecord(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // it tells of each bad UTF-8
  v1::JobRecord proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const absl::StatusOr<JobRecord> record = FromProto(proto);
  if (!record.ok()) {
    DDPRUN_CHECK(!record.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string once = ToProto(*record).SerializeAsString();
  v1::JobRecord again;
  DDPRUN_CHECK(again.ParseFromString(once), "our own bytes do not parse");
  const absl::StatusOr<JobRecord> back = FromProto(again);
  DDPRUN_CHECK(back.ok(), back.status().ToString());
  DDPRUN_CHECK(*back == *record, again.DebugString());
  return true;
}

}  // namespace ddprun::rendezvous
