#include "tests/fuzz/message_damage.h"

#include <iterator>
#include <string>

#include "base/check.h"

namespace ddprun {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;
using Field = google::protobuf::FieldDescriptor;

constexpr uint64_t kNumbers[] = {
    0,         1,         2,          3,          64,         65,        255,        256,
    4096,      4097,      16384,      16385,      65535,      65536,     0x7FFFFFFF, 0x80000000,
    604800000, 604800001, 0xFFFFFFFF, 1ULL << 56, 1ULL << 63, UINT64_MAX};
constexpr size_t kLengths[] = {0, 1, 255, 256, 257, 4096, 4097, 16384, 16385, 65536};

uint64_t EdgeNumber(InputBytes* bytes) {
  const uint8_t byte = bytes->Next();
  return byte < 64 ? byte : byte < 240 ? kNumbers[byte % std::size(kNumbers)] : bytes->Number();
}

std::string EdgeText(InputBytes* bytes) {
  const uint8_t byte = bytes->Next();
  if (byte < 100) return bytes->Text(byte % 16);
  std::string text(kLengths[byte % std::size(kLengths)], 'x');
  if (!text.empty() && byte > 240) text.front() = "\n\xFF\x1B\0"[byte % 4];
  return text;
}

void SetNumber(InputBytes* bytes, Message* message, const Field* field) {
  const Reflection* reflection = message->GetReflection();
  const uint64_t number = EdgeNumber(bytes);
  switch (field->cpp_type()) {
    case Field::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field, static_cast<uint32_t>(number));
    case Field::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, number);
    case Field::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<int32_t>(number));
    case Field::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, static_cast<int64_t>(number));
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, number % 2 == 1);
    case Field::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(number % 16) - 1);
    case Field::CPPTYPE_STRING:
      return reflection->SetString(message, field, EdgeText(bytes));
    case Field::CPPTYPE_FLOAT:
    case Field::CPPTYPE_DOUBLE:
    case Field::CPPTYPE_MESSAGE:
      DDPRUN_CHECK(false, "a type that this fuzzer doesn't know: " + field->full_name());
  }
}

void Add(InputBytes* bytes, Message* message, const Field* field) {
  const Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_STRING:
      return reflection->AddString(message, field, EdgeText(bytes));
    case Field::CPPTYPE_UINT32:
      return reflection->AddUInt32(message, field, static_cast<uint32_t>(EdgeNumber(bytes)));
    case Field::CPPTYPE_UINT64:
      return reflection->AddUInt64(message, field, EdgeNumber(bytes));
    case Field::CPPTYPE_MESSAGE:
      return DamageMessage(bytes, reflection->AddMessage(message, field));
    case Field::CPPTYPE_INT64:
      return reflection->AddInt64(message, field, static_cast<int64_t>(EdgeNumber(bytes)));
    case Field::CPPTYPE_ENUM:
      return reflection->AddEnumValue(message, field, static_cast<int>(bytes->Below(16)) - 1);
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_BOOL:
    case Field::CPPTYPE_FLOAT:
    case Field::CPPTYPE_DOUBLE:
      DDPRUN_CHECK(false, "a list of a type that this fuzzer doesn't know: " + field->full_name());
  }
}

void DamageList(InputBytes* bytes, Message* message, const Field* field) {
  const Reflection* reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  const uint8_t what = bytes->Next();
  if (size > 0 && what < 30) return reflection->RemoveLast(message, field);
  if (size > 0 && what < 128 && field->cpp_type() == Field::CPPTYPE_MESSAGE) {
    return DamageMessage(bytes, reflection->MutableRepeatedMessage(
                                    message, field, static_cast<int>(what % 64) % size));
  }
  const int more = what > 250 ? 300 : 1 + what % 3;
  for (int i = 0; i < more; ++i) Add(bytes, message, field);
}

}  // namespace

void DamageMessage(InputBytes* bytes, Message* message) {
  const auto* descriptor = message->GetDescriptor();
  const Reflection* reflection = message->GetReflection();
  if (descriptor->field_count() == 0) return;
  const Field* field = descriptor->field(
      static_cast<int>(bytes->Below(static_cast<size_t>(descriptor->field_count()))));
  if (field->is_repeated()) return DamageList(bytes, message, field);
  if (field->cpp_type() != Field::CPPTYPE_MESSAGE) {
    return bytes->Chance(20) ? reflection->ClearField(message, field)
                             : SetNumber(bytes, message, field);
  }
  // Mostly in what is there, so that messages stay whole.
  if (!reflection->HasField(*message, field) && !bytes->Chance(12)) return;
  if (bytes->Chance(8)) return reflection->ClearField(message, field);
  DamageMessage(bytes, reflection->MutableMessage(message, field));
}

}  // namespace ddprun
