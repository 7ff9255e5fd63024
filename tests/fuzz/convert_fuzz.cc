#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <bit>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {

// Reads `bytes` as a message of each side of the stream. What is taken must come back unchanged
// from a second trip over the wire; aborts if it doesn't. Returns how many of the two were taken.
int ConvertBytes(absl::string_view bytes);

namespace {

// A message of a kind that only a later release has is taken, and has nothing that could be
// written.
bool IsUnknown(const AgentMessage& message) {
  return std::holds_alternative<UnknownKind>(message.body);
}
bool IsUnknown(const ServiceMessage& message) {
  return std::holds_alternative<UnknownKind>(message);
}

template <typename Proto>
bool Convert(absl::string_view bytes) {
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const auto message = FromProto(proto);
  if (!message.ok()) {
    DDPRUN_CHECK(!message.status().message().empty(), "a refusal without a reason");
    return false;
  }
  if (IsUnknown(*message)) return true;
  const std::string once = ToProto(*message).SerializeAsString();
  Proto again;
  DDPRUN_CHECK(again.ParseFromString(once), "our own bytes do not parse");
  DDPRUN_CHECK(once.size() <= kMessageBytesMax, "our own message is too large");
  const auto back = FromProto(again);
  DDPRUN_CHECK(back.ok(), back.status().ToString());
  DDPRUN_CHECK(ToProto(*back).SerializeAsString() == once, again.DebugString());
  return true;
}

}  // namespace

int ConvertBytes(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;  // protobuf logs each invalid UTF-8
  return (Convert<v1::AgentMessage>(bytes) ? 1 : 0) + (Convert<v1::ServiceMessage>(bytes) ? 1 : 0);
}

}  // namespace ddprun::rendezvous

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr int kRounds = 20'000;

std::vector<std::string> Corpus() {
  std::vector<std::string> corpus;
  for (const auto& m : SampleAgentMessages()) corpus.push_back(ToProto(m).SerializeAsString());
  for (const auto& m : SampleServiceMessages()) corpus.push_back(ToProto(m).SerializeAsString());
  return corpus;
}

// Damages bytes: flips, cuts, copies within, and splices with another sample.
void DamageBytes(Rng* rng, const std::vector<std::string>& corpus, std::string* bytes) {
  const size_t at = bytes->empty() ? 0 : rng->Below(bytes->size());
  const size_t length = rng->Below(16);
  const std::string& other = corpus[rng->Below(corpus.size())];
  switch (rng->Below(5)) {
    case 0:
      if (!bytes->empty()) (*bytes)[at] = static_cast<char>(rng->Below(256));
      break;
    case 1:
      bytes->erase(at, length);
      break;
    case 2:
      bytes->insert(at, bytes->substr(rng->Below(bytes->size() + 1), length));
      break;
    case 3:
      bytes->replace(at, std::string::npos, other, rng->Below(other.size()), std::string::npos);
      break;
    default:
      bytes->append(length, static_cast<char>(rng->Below(256)));
      break;
  }
}

uint64_t InterestingNumber(Rng* rng) {
  static constexpr uint64_t kNumbers[] = {
      0,     1,     2,     3,          64,         65,         255,  256,       4096,      16384,
      16385, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 5000, 604800000, UINT64_MAX};
  return rng->Chance(30) ? rng->Next() : kNumbers[rng->Below(std::size(kNumbers))];
}

std::string InterestingText(Rng* rng) {
  static constexpr size_t kLengths[] = {0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 16385};
  std::string text(kLengths[rng->Below(std::size(kLengths))], 'x');
  if (!text.empty() && rng->Chance(20)) text[rng->Below(text.size())] = '\n';
  return text;
}

// Sets one field, anywhere in the message, to something at the edge of its range.
void DamageField(Rng* rng, google::protobuf::Message* message) {
  using Field = google::protobuf::FieldDescriptor;
  const auto* descriptor = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  if (descriptor->field_count() == 0) return;
  const Field* field = descriptor->field(
      static_cast<int>(rng->Below(static_cast<uint64_t>(descriptor->field_count()))));
  if (field->is_repeated()) {
    const uint64_t count = rng->Below(3);
    for (uint64_t i = 0; i < count; ++i) {
      if (field->cpp_type() == Field::CPPTYPE_STRING) {
        reflection->AddString(message, field, InterestingText(rng));
      } else if (field->cpp_type() == Field::CPPTYPE_UINT32) {
        reflection->AddUInt32(message, field, static_cast<uint32_t>(InterestingNumber(rng)));
      } else if (field->cpp_type() == Field::CPPTYPE_UINT64) {
        reflection->AddUInt64(message, field, InterestingNumber(rng));
      } else {
        DamageField(rng, reflection->AddMessage(message, field));
      }
    }
    return;
  }
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      // Most of the time what is there, so that messages stay whole.
      if (!reflection->HasField(*message, field) && rng->Chance(95)) return;
      return DamageField(rng, reflection->MutableMessage(message, field));
    case Field::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field, static_cast<uint32_t>(InterestingNumber(rng)));
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, InterestingNumber(rng));
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, rng->Chance(50));
    case Field::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(rng->Below(7)) - 1);
    case Field::CPPTYPE_STRING:
      return reflection->SetString(message, field, InterestingText(rng));
    case Field::CPPTYPE_DOUBLE:
      // Random bits: infinities and NaN are among them.
      return reflection->SetDouble(message, field, std::bit_cast<double>(InterestingNumber(rng)));
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_INT64:
    case Field::CPPTYPE_FLOAT:
      FAIL() << field->full_name() << " has a type that this fuzzer does not know";
  }
}

TEST(ConvertSmoke, SamplesAreTaken) {
  for (const std::string& bytes : Corpus()) EXPECT_GE(ConvertBytes(bytes), 1);
}

TEST(ConvertSmoke, DamagedBytes) {
  Rng rng(kSeed);
  const std::vector<std::string> corpus = Corpus();
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = corpus[rng.Below(corpus.size())];
    for (uint64_t i = rng.Below(4); i < 4; ++i) DamageBytes(&rng, corpus, &bytes);
    taken += ConvertBytes(bytes);
  }
  // Some inputs are taken and some refused: the run reached both sides of the checks.
  EXPECT_GT(taken, kRounds / 100);
  EXPECT_LT(taken, kRounds * 9 / 10);
}

TEST(ConvertSmoke, FieldsAtTheEdgesOfTheirRanges) {
  Rng rng(kSeed);
  const std::vector<AgentMessage> agent = SampleAgentMessages();
  const std::vector<ServiceMessage> service = SampleServiceMessages();
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    v1::AgentMessage from_agent = ToProto(agent[rng.Below(agent.size())]);
    v1::ServiceMessage from_service = ToProto(service[rng.Below(service.size())]);
    for (uint64_t i = rng.Below(3); i < 3; ++i) {
      DamageField(&rng, &from_agent);
      DamageField(&rng, &from_service);
    }
    taken += ConvertBytes(from_agent.SerializeAsString());
    taken += ConvertBytes(from_service.SerializeAsString());
  }
  EXPECT_GT(taken, kRounds / 10);
  EXPECT_LT(taken, 2 * kRounds * 9 / 10);
}

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) { ddprun::rendezvous::ConvertBytes(bytes); }
