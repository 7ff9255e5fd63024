#ifndef DDPRUN_RENDEZVOUS_SERVER_ENCODED_MESSAGES_H_
#define DDPRUN_RENDEZVOUS_SERVER_ENCODED_MESSAGES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {

// Encodes messages. A message to many streams is encoded once, and the streams share its bytes,
// which gRPC counts references to: a message to thousands costs the memory of one. Threads: one at
// a time.
class EncodedMessages {
 public:
  grpc::ByteBuffer Encode(const SharedMessage& message);

  // How many messages were encoded.
  uint64_t count() const { return count_; }

 private:
  struct Entry {
    std::weak_ptr<const ServiceMessage> message;
    grpc::ByteBuffer bytes;
  };

  std::deque<Entry> entries_;  // of messages that others still hold; the latest last
  uint64_t count_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ENCODED_MESSAGES_H_
