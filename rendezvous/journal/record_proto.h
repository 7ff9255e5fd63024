#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_

#include "absl/status/statusor.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// A job's record as it is kept, and back. What comes from the core's bounds comes back equal; texts
// beyond theirs are cut as on the wire. Threads: any.
v1::JobRecord ToProto(const JobRecord& record);

// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED — something that no service writes; the text names
// the field and the value. Ensures: what the core requires of a record, so that no file makes a
// service abort: bounds of core/bounds.h, names, and what parts say of each other.
absl::StatusOr<JobRecord> FromProto(const v1::JobRecord& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_PROTO_H_
