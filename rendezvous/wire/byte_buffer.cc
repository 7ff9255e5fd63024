#include "rendezvous/wire/byte_buffer.h"

#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

namespace ddprun::rendezvous {

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

bool ParseBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  grpc::Slice slice;
  if (bytes.Valid() && bytes.DumpToSingleSlice(&slice).ok()) {
    return message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
  }
  return false;
}

}  // namespace ddprun::rendezvous
