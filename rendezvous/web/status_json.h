#ifndef DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
#define DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_

#include <string>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

// A status in protobuf's JSON form with the proto's names, absent numbers and texts included; what
// `ddprun status --json` prints and the page reads. 64-bit numbers are strings there.
// Errors: INTERNAL — protobuf can't. Threads: any.
absl::StatusOr<std::string> StatusJson(const google::protobuf::Message& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_STATUS_JSON_H_
