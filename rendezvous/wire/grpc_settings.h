#ifndef DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_
#define DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// The settings of gRPC for every server and client of ours, where its defaults are unsafe here.
// tests/server/grpc_settings_test.cc has a test for each that fails with the default.

// One attempt at one address: long enough for one lost SYN (sent again after 1 s).
inline constexpr absl::Duration kConnectTimeout = absl::Milliseconds(1500);
// A client pings a silent service after kClientKeepaliveTime, and gives the connection up
// kClientKeepaliveTimeout later. The new connection supersedes the old one, so giving up early
// costs nothing.
inline constexpr absl::Duration kClientKeepaliveTime = absl::Seconds(2);
inline constexpr absl::Duration kClientKeepaliveTimeout = absl::Seconds(3);
// A service must not give up as early: a closed stream is one of the two proofs of death (R4), and
// leases decide about silent agents. These times only close connections that no lease covers.
inline constexpr absl::Duration kServerKeepaliveTime = absl::Seconds(60);
inline constexpr absl::Duration kServerKeepaliveTimeout = absl::Seconds(60);

// Settings that differ between services. They can't be changed later, because gRPC takes the first
// of two values for an argument.
struct GrpcLimits {
  size_t message_bytes = kMessageBytesMax;
  size_t streams_per_connection = 256;  // of a server; further calls wait in the client
  // How long a client waits for a silent service before it pings (see kClientKeepaliveTime).
  absl::Duration keepalive = kClientKeepaliveTime;
  // How long one attempt of a client to connect may take.
  absl::Duration connect_timeout = kConnectTimeout;
  // How long a server keeps a connection without a call. Members always have a stream.
  absl::Duration connection_idle = absl::Seconds(30);
};

// Applies the settings to a server before it is built.
void ApplyServerSettings(grpc::ServerBuilder* builder, const GrpcLimits& limits = {});

// The settings for a channel.
grpc::ChannelArguments ChannelSettings(const GrpcLimits& limits = {});

// Makes a channel with these settings; it connects when it is first used. Params: target:
// "host:port", "[IPv6]:port", "unix:/path"; tls: for TCP; without files, no TLS.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, const TlsFiles& tls = {},
                                           const GrpcLimits& limits = {});

// Converts a status for the wire and back; the codes have the same numbers. The text is cut to 1
// KiB, because metadata has to fit into 8 KiB after percent-encoding. Threads: any.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Streams carry raw bytes on our side of gRPC, so that a message that doesn't parse differs from
// the end of the stream, and the sizes of waiting messages are known. Threads: any.
grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);
// Returns false if the bytes are no such message.
bool ParseBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);

// Configures gRPC and protobuf for the whole process, once. Names are resolved by getaddrinfo(3)
// (nsswitch, mDNS, /etc/hosts), as the workers do it; a connection reads as many bytes at a
// time as its channel says; log messages go to our log. The environment variables
// GRPC_DNS_RESOLVER, GRPC_EXPERIMENTS, GRPC_VERBOSITY and GRPC_TRACE override this. The functions
// of grpc_settings.h and tls.h call it. Threads: any, but the first call changes the environment
// for a moment (setenv(3)), so no other thread may read it then.
void InitializeGrpc();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_
