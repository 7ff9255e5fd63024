#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "rendezvous/journal/record_proto.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/sample_records.h"

namespace ddprun::rendezvous {

// Reads `bytes` as a job's record from a journal. What is taken must come back equal from a second
// trip; aborts if it doesn't. Returns whether it was taken.
bool ReadRecord(absl::string_view bytes);

bool ReadRecord(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // protobuf logs each invalid UTF-8
  v1::JobRecord proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const absl::StatusOr<JobRecord> record = FromProto(proto);
  if (!record.ok()) {
    DDPRUN_CHECK(!record.status().message().empty(), "a refusal without a reason");
    return false;
  }
  const std::string once = ToProto(*record).SerializeAsString();
  v1::JobRecord again;
  DDPRUN_CHECK(again.ParseFromString(once), "our own bytes do not parse");
  const absl::StatusOr<JobRecord> back = FromProto(again);
  DDPRUN_CHECK(back.ok(), back.status().ToString());
  DDPRUN_CHECK(*back == *record, again.DebugString());
  return true;
}

}  // namespace ddprun::rendezvous

namespace ddprun::rendezvous {
namespace {

using Field = google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr uint64_t kSeed = 20261123;
constexpr int kRounds = 8'000;

uint64_t InterestingNumber(Rng* rng) {
  static constexpr uint64_t kNumbers[] = {
      0,          1,          2,          3,          5,          6,          16,
      17,         256,        4096,       4097,       16384,      16385,      65535,
      65536,      0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1ULL << 56, 1ULL << 61, (1ULL << 61) + 1,
      1ULL << 63, UINT64_MAX};
  return rng->Chance(20) ? rng->Next() : kNumbers[rng->Below(std::size(kNumbers))];
}

std::string InterestingText(Rng* rng) {
  static constexpr size_t kLengths[] = {0, 1, 5, 256, 257, 4096, 4097};
  std::string text(kLengths[rng->Below(std::size(kLengths))], 'x');
  if (!text.empty() && rng->Chance(20)) text[rng->Below(text.size())] = '\n';
  return text;
}

void SetNumber(Rng* rng, Message* message, const Field* field) {
  const Reflection* reflection = message->GetReflection();
  const uint64_t number = InterestingNumber(rng);
  switch (field->cpp_type()) {
    case Field::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field, static_cast<uint32_t>(number));
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, number);
    case Field::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, static_cast<int64_t>(number));
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, number % 2 == 1);
    case Field::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(number % 16) - 1);
    case Field::CPPTYPE_STRING:
      return reflection->SetString(message, field, InterestingText(rng));
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_FLOAT:
    case Field::CPPTYPE_DOUBLE:
    case Field::CPPTYPE_MESSAGE:
      FAIL() << field->full_name() << " has a type that this fuzzer does not know";
  }
}

// Sets, adds, drops or doubles something, anywhere in the message.
void DamageField(Rng* rng, Message* message) {
  const auto* descriptor = message->GetDescriptor();
  const Reflection* reflection = message->GetReflection();
  const Field* field = descriptor->field(
      static_cast<int>(rng->Below(static_cast<uint64_t>(descriptor->field_count()))));
  const bool is_message = field->cpp_type() == Field::CPPTYPE_MESSAGE;
  if (field->is_repeated()) {
    const int size = reflection->FieldSize(*message, field);
    if (size > 0 && rng->Chance(10)) return reflection->RemoveLast(message, field);
    if (!is_message) return;
    const int at = size == 0 ? 0 : static_cast<int>(rng->Below(static_cast<uint64_t>(size)));
    if (size > 0 && rng->Chance(80)) {
      return DamageField(rng, reflection->MutableRepeatedMessage(message, field, at));
    }
    Message* added = reflection->AddMessage(message, field);
    if (size > 0) added->CopyFrom(reflection->GetRepeatedMessage(*message, field, at));
    return;
  }
  if (is_message) {
    if (rng->Chance(5)) return reflection->ClearField(message, field);
    if (!reflection->HasField(*message, field) && rng->Chance(80)) return;
    return DamageField(rng, reflection->MutableMessage(message, field));
  }
  SetNumber(rng, message, field);
}

TEST(JournalSmoke, FieldsAtTheEdgesOfTheirRanges) {
  Rng rng(kSeed);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    v1::JobRecord proto = ToProto(RandomRecord(&rng));
    for (uint64_t i = rng.Below(3); i < 3; ++i) DamageField(&rng, &proto);
    taken += ReadRecord(proto.SerializeAsString()) ? 1 : 0;
  }
  // Some inputs are taken and some refused: the run reached both sides of the checks.
  EXPECT_GT(taken, kRounds / 20);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

TEST(JournalSmoke, DamagedBytes) {
  Rng rng(kSeed);
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = ToProto(RandomRecord(&rng)).SerializeAsString();
    for (uint64_t i = rng.Below(3); i < 3; ++i) {
      const size_t at = rng.Below(bytes.size());
      if (rng.Chance(80)) bytes[at] = static_cast<char>(rng.Below(256));
      if (rng.Chance(10)) bytes.erase(at, rng.Below(16));
      if (rng.Chance(10)) bytes.insert(at, bytes.substr(rng.Below(bytes.size()), rng.Below(64)));
      if (bytes.empty()) break;
    }
    taken += ReadRecord(bytes) ? 1 : 0;
  }
  EXPECT_GT(taken, kRounds / 100);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) { ddprun::rendezvous::ReadRecord(bytes); }
