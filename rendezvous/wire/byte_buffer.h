#ifndef DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
#define DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

namespace ddprun::rendezvous {

// Streams carry raw bytes on our side of gRPC, so that a message that doesn't parse differs from
// the end of the stream, and the sizes of waiting messages are known. Threads: any.
grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);
// Returns false if the bytes are no such message.
bool ParseBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_BYTE_BUFFER_H_
