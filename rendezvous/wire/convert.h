#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// Convert between protobuf and the core's plain messages. Everything from the wire is validated
// here, once: bounds of core/bounds.h, names, ranges, defaults for absent numbers (UTF-8 by
// protobuf's parser). Errors: INVALID_ARGUMENT or RESOURCE_EXHAUSTED; the text names the field, the
// value and the bound. FAILED_PRECONDITION: a Join or Welcome of another protocol major; the text
// says which side to upgrade. Threads: any.
absl::StatusOr<AgentMessage> FromProto(const v1::AgentMessage& proto);
absl::StatusOr<ServiceMessage> FromProto(const v1::ServiceMessage& proto);

// Longer texts are cut at a character border, with "…"; bytes that aren't UTF-8 become U+FFFD.
// Durations are rounded up to milliseconds, at least 1, because 0 is the default on the wire.
v1::AgentMessage ToProto(const AgentMessage& message);
v1::ServiceMessage ToProto(const ServiceMessage& message);
v1::JobStatus ToProto(const JobView& view);
v1::GenerationStatus ToProto(const GenerationView& view, Instant now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
