#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {

// A failed worker, in both directions of the stream. Params: field: its path, for errors.
WorkerFailure ReadFailure(FieldChecker* checker, absl::string_view field,
                          const v1::WorkerFailure& proto);
void WriteFailure(const WorkerFailure& failure, v1::WorkerFailure* proto);

// A list of failed workers, at most kFailuresMax.
std::vector<WorkerFailure> ReadFailures(
    FieldChecker* checker, absl::string_view field,
    const google::protobuf::RepeatedPtrField<v1::WorkerFailure>& protos);
void WriteFailures(const std::vector<WorkerFailure>& failures,
                   google::protobuf::RepeatedPtrField<v1::WorkerFailure>* protos);

// Parts of messages that the journal keeps, too. Params: field: the part's path, for errors.

JobSpec ReadJobSpec(FieldChecker* checker, absl::string_view field, const std::string& run_id,
                    const v1::JobSpec& proto);
// Writes all fields but the run id, which the proto lacks.
void WriteJobSpec(const JobSpec& job, v1::JobSpec* proto);

// Params: nodes_max: of the job, above all claims.
NodeInfo ReadNodeInfo(FieldChecker* checker, absl::string_view field, const v1::NodeInfo& proto,
                      uint32_t nodes_max);
void WriteNodeInfo(const NodeInfo& node, v1::NodeInfo* proto);

Verdict ReadVerdict(FieldChecker* checker, absl::string_view field, const v1::Verdict& proto);
void WriteVerdict(const Verdict& verdict, v1::Verdict* proto);

// What goes from agents to the service, and from there to people who watch.
void WriteGpus(const std::vector<GpuUse>& gpus,
               google::protobuf::RepeatedPtrField<v1::GpuStatus>* protos);
void WriteWarm(const WarmUse& warm, v1::WarmStatus* proto);

// An unknown cause counts as kOther.
TimeCause ReadTimeCause(int cause);
v1::TimeCause WriteTimeCause(TimeCause cause);

// The time in milliseconds, rounded up, and at least 1, because 0 means "the default" on the wire.
uint32_t ToMilliseconds(absl::Duration time);
// The time in milliseconds for a field in which 0 has a meaning, or is the default.
uint32_t ToMillisecondsOrZero(absl::Duration time);
// The whole milliseconds or microseconds, the last at most 2^32 - 1; 0 for a negative time.
uint64_t ToWholeMilliseconds(absl::Duration time);
uint64_t ToMicroseconds(absl::Duration time);
uint32_t ToBoundedMicroseconds(absl::Duration time);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_PARTS_H_
