#ifndef DDPRUN_RENDEZVOUS_ETCD_STORED_RECORD_H_
#define DDPRUN_RENDEZVOUS_ETCD_STORED_RECORD_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/instant.h"
#include "rendezvous/journal/journal.h"

namespace ddprun::rendezvous {

// A job's record as the value of its key in etcd, and back. Params: boot: of this machine, "" =
// unknown; now: its clock.
std::string StoredRecordOf(const JobRecord& record, const std::string& boot, Instant now);

// Errors: those of reading a record; DATA_LOSS: it is none. Ensures: `elapsed` is within 0 and now.
absl::StatusOr<KeptJob> ReadStoredRecord(const std::string& value, const std::string& run_id,
                                         const std::string& boot, Instant now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_STORED_RECORD_H_
