#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/rng.h"
#include "ddprun/etcd/rpc.pb.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/etcd/etcd_journal.h"
#include "rendezvous/etcd/leadership.h"
#include "rendezvous/journal/record_proto.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_damage.h"
#include "tests/support/inputs.h"
#include "tests/support/sample_records.h"

namespace ddprun::rendezvous {

// Reads `bytes` as what etcd answers: what is after an 'r' as the value of a job's record, written
// in this boot, else as the reply to a look at the leader's key. What is taken comes back equal; a
// service goes on from such a record, and its invariants hold. Aborts if they don't. Returns
// whether it was taken.
bool ReadEtcdAnswer(absl::string_view bytes);

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
  const google::protobuf::LogSilencer silencer;  // protobuf logs each invalid UTF-8
  return absl::ConsumePrefix(&bytes, "r") ? ReadRecordBytes(bytes) : ReadLeaderBytes(bytes);
}

}  // namespace ddprun::rendezvous

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kSeed = 20261124;
const int kRounds = Inputs(4'000);

const char* const kPieces[] = {
    "{",    "}",    "\"node\"", ":", "\"n1\"", ",",       "\"address\"", "\"host0:29400\"",
    "\"\"", "null", "[",        "]", "7",      "\\u0000", "\xFF",        "\xC3\xA9"};

void Damage(Rng* rng, google::protobuf::Message* message) {
  std::string choices(64, '\0');
  for (char& byte : choices) byte = static_cast<char>(rng->Below(256));
  InputBytes bytes(reinterpret_cast<const uint8_t*>(choices.data()), choices.size());
  DamageMessage(&bytes, message);
}

std::string Reply(const std::string& value) {
  etcdserverpb::RangeResponse reply;
  reply.add_kvs()->set_key("/ddprun/job/leader");
  reply.mutable_kvs(0)->set_value(value);
  return reply.SerializeAsString();
}

TEST(EtcdSmoke, Leaders) {
  EXPECT_TRUE(ReadEtcdAnswer(""));
  EXPECT_TRUE(ReadEtcdAnswer(Reply(LeaderValue("n1", "host0:29400"))));
  EXPECT_TRUE(ReadEtcdAnswer(Reply(LeaderValue("n1\xFF", ""))));
  EXPECT_FALSE(ReadEtcdAnswer(Reply("")));
  EXPECT_FALSE(ReadEtcdAnswer(Reply("[1]")));
  EXPECT_FALSE(ReadEtcdAnswer(Reply(std::string(100'000, '['))));
  EXPECT_FALSE(ReadEtcdAnswer(Reply(R"({"node": 1, "address": "a"})")));
}

TEST(EtcdSmoke, LeadersOfPieces) {
  Rng rng(kSeed);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string value = LeaderValue("n1", "host0:29400");
    for (uint64_t i = rng.Below(3); i > 0; --i) {
      value.insert(rng.Below(value.size() + 1), kPieces[rng.Below(std::size(kPieces))]);
    }
    taken += ReadEtcdAnswer(Reply(value)) ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 20);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

// Anybody with write access to the key may write any time.
TEST(EtcdSmoke, ARecordOfATimeThatCannotBe) {
  Rng rng(kSeed);
  v1::StoredRecord stored;
  stored.set_boot_id("boot");
  *stored.mutable_record() = ToProto(RandomRecord(&rng));
  for (const int64_t made :
       {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{5'000'000'001}, INT64_MAX}) {
    stored.set_made_ns(made);
    EXPECT_TRUE(ReadEtcdAnswer("r" + stored.SerializeAsString())) << made;
  }
}

TEST(EtcdSmoke, RecordsAtTheEdgesOfTheirRanges) {
  Rng rng(kSeed);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    v1::StoredRecord stored;
    stored.set_boot_id("boot");
    stored.set_made_ns(
        static_cast<int64_t>(rng.Chance(50) ? rng.Below(5'000'000'000) : rng.Next()));
    *stored.mutable_record() = ToProto(RandomRecord(&rng));
    for (uint64_t i = rng.Below(3); i > 0; --i) Damage(&rng, stored.mutable_record());
    taken += ReadEtcdAnswer("r" + stored.SerializeAsString()) ? 1 : 0;
  }
  // Some inputs are taken and some refused: the run reached both sides of the checks.
  EXPECT_GT(taken, kRounds / 20);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) { ddprun::rendezvous::ReadEtcdAnswer(bytes); }
