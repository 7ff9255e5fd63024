#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_FAILURE_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_FAILURE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_FAILURE_H_
