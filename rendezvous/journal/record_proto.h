#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_

#include "absl/status/statusor.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// Converts a job's record to its stored form and back. Values within the core's bounds are
// unchanged; longer texts are cut as on the wire. Threads: any.
v1::JobRecord ToProto(const JobRecord& record);

// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED: a value that no service writes; the text names the
// field and the value. Ensures: everything that the core requires of a record, so that no file
// makes a service abort: bounds of core/bounds.h, names, and consistency between parts.
absl::StatusOr<JobRecord> FromProto(const v1::JobRecord& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_
