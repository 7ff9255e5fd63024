#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/state_machine.h"

namespace ddprun::rendezvous {

// Between protobuf and the core's plain messages. Everything from the wire is validated here, once:
// bounds of core/bounds.h, UTF-8 of names, ranges, defaults for absent numbers.
// Errors: INVALID_ARGUMENT or RESOURCE_EXHAUSTED; the text names the field, the value and the bound.
// Threads: any.
absl::StatusOr<AgentMessage> FromProto(const v1::AgentMessage& proto);
absl::StatusOr<ServiceMessage> FromProto(const v1::ServiceMessage& proto);

// Texts beyond their bound are cut at a character border, with "…".
v1::AgentMessage ToProto(const AgentMessage& message);
v1::ServiceMessage ToProto(const ServiceMessage& message);
v1::JobStatus ToProto(const JobView& view);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
