#include "rendezvous/server/encoded_messages.h"

#include <utility>

#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

// A verdict has two forms, sent by turns; older messages were sent to all.
constexpr size_t kRememberedMax = 4;

}  // namespace

grpc::ByteBuffer EncodedMessages::Encode(const SharedMessage& message) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.message.expired(); });
  for (const Entry& entry : entries_) {
    if (entry.message.lock() == message) return entry.bytes;
  }
  ++count_;
  grpc::ByteBuffer bytes = ToBytes(ToProto(*message));
  if (message.use_count() == 1) return bytes;  // no other stream gets it
  if (entries_.size() == kRememberedMax) entries_.pop_front();
  entries_.push_back({.message = message, .bytes = bytes});
  return bytes;
}

}  // namespace ddprun::rendezvous
