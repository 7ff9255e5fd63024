#include "rendezvous/etcd/stored_record.h"

#include <utility>

#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/journal/record_proto.h"

namespace ddprun::rendezvous {

std::string StoredRecordOf(const JobRecord& record, const std::string& boot, Instant now) {
  v1::StoredRecord stored;
  stored.set_boot_id(boot);
  stored.set_made_ns(now.nanoseconds());
  *stored.mutable_record() = ToProto(record);
  return stored.SerializeAsString();
}

absl::StatusOr<KeptJob> ReadStoredRecord(const std::string& value, const std::string& run_id,
                                         const std::string& boot, Instant now) {
  v1::StoredRecord stored;
  if (!stored.ParseFromString(value)) return absl::DataLossError("no record of ddprun's");
  absl::StatusOr<JobRecord> record = FromProto(stored.record());
  if (!record.ok()) return record.status();
  const bool same_boot = !boot.empty() && stored.boot_id() == boot;
  // The time comes from etcd, where other programs may have written any value.
  const bool is_past = stored.made_ns() >= 0 && stored.made_ns() <= now.nanoseconds();
  return KeptJob{.run_id = run_id,
                 .record = *std::move(record),
                 .elapsed = same_boot && is_past ? now - Instant::FromNanoseconds(stored.made_ns())
                                                 : absl::ZeroDuration()};
}

}  // namespace ddprun::rendezvous
