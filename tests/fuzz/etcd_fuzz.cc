#include "tests/fuzz/etcd_fuzz.h"

#include <google/protobuf/stubs/logging.h>

#include <optional>
#include <string>

#include "absl/strings/strip.h"
#include "base/check.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/etcd/stored_record.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

constexpr Instant kNow = Instant::FromNanoseconds(5'000'000'000);
constexpr char kBoot[] = "boot";

void ExpectReason(const absl::Status& status) {
  DDPRUN_CHECK(!status.message().empty(), "a refusal without a reason");
}

bool ReadLeaderBytes(absl::string_view bytes) {
  pb::RangeResponse reply;
  if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const absl::StatusOr<std::optional<Leader>> leader = ReadLeader(reply);
  if (!leader.ok()) {
    ExpectReason(leader.status());
    return false;
  }
  if (!leader->has_value()) return true;
  pb::RangeResponse again;
  again.add_kvs()->set_value(LeaderValue((*leader)->node_id, (*leader)->address));
  const absl::StatusOr<std::optional<Leader>> back = ReadLeader(again);
  DDPRUN_CHECK(back.ok() && back->has_value(), "our own value can't be read");
  DDPRUN_CHECK((*back)->node_id == (*leader)->node_id && (*back)->address == (*leader)->address,
               "a leader comes back otherwise");
  return true;
}

bool ReadRecordBytes(absl::string_view bytes) {
  const absl::StatusOr<KeptJob> kept = ReadStoredRecord(std::string(bytes), "job", kBoot, kNow);
  if (!kept.ok()) {
    ExpectReason(kept.status());
    return false;
  }
  DDPRUN_CHECK(kept->elapsed >= absl::ZeroDuration() && kept->elapsed <= kNow - Instant(),
               "a record is older than the machine, or of the future");
  const absl::StatusOr<KeptJob> back = ReadStoredRecord(
      StoredRecordOf(kept->record, kBoot, kNow - kept->elapsed), "job", kBoot, kNow);
  DDPRUN_CHECK(back.ok(), back.status().ToString());
  DDPRUN_CHECK(back->record == kept->record, "a record comes back otherwise");
  DDPRUN_CHECK(back->elapsed == kept->elapsed, "the time of a record comes back otherwise");
  JobRecord record = kept->record;
  ++record.life;
  StateMachine machine(kNow, std::move(record), kept->elapsed, "");
  machine.CheckInvariants();
  machine.Step(kNow, TimerDue{});
  machine.CheckInvariants();
  (void)machine.View(kNow);
  return true;
}

}  // namespace

bool ReadEtcdAnswer(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // it tells of each bad UTF-8
  return absl::ConsumePrefix(&bytes, "r") ? ReadRecordBytes(bytes) : ReadLeaderBytes(bytes);
}

}  // namespace ddprun::rendezvous
