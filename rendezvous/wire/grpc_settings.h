#ifndef DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_
#define DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/tls_files.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// gRPC as every server and client of ours uses it: where its defaults are unsafe here, and why.
// tests/server/grpc_settings_test.cc has a test for each that fails with the default.

// One attempt at one address: long enough for one lost SYN (sent again after 1 s).
inline constexpr absl::Duration kConnectTimeout = absl::Milliseconds(1500);
// A client asks a silent service for a sign of life after this time, and gives the connection up
// after that one; a new connection supersedes the old, so an early end costs nothing.
inline constexpr absl::Duration kClientKeepaliveTime = absl::Seconds(2);
inline constexpr absl::Duration kClientKeepaliveTimeout = absl::Seconds(3);
// A service must not do the same as early: a closed stream is one of the two proofs of death (R4),
// and leases decide about silent agents. This only clears away what no lease covers.
inline constexpr absl::Duration kServerKeepaliveTime = absl::Seconds(60);
inline constexpr absl::Duration kServerKeepaliveTimeout = absl::Seconds(60);

// Sets up what gRPC and protobuf have one of in a process, once: names are resolved by
// getaddrinfo(3) (nsswitch, mDNS, /etc/hosts; as the workers do it), a connection reads into as
// little as it is told to, and their messages go to our log, unless GRPC_DNS_RESOLVER,
// GRPC_EXPERIMENTS, GRPC_VERBOSITY or GRPC_TRACE say otherwise. The functions below call it.
// Threads: any, but the first call changes the environment for a moment (setenv(3)), so no other
// thread may read it then.
void InitializeGrpc();

// What differs between services. Of an argument that is set twice gRPC takes the first, so these
// can't be changed afterwards.
struct GrpcLimits {
  size_t message_bytes = kMessageBytesMax;
  size_t streams_per_connection = 256;  // of a server; more wait in the client until others end
  // Of a client: as long as a service that is well may say nothing (see kClientKeepaliveTime).
  absl::Duration keepalive = kClientKeepaliveTime;
  // How long one attempt of a client to connect may take.
  absl::Duration connect_timeout = kConnectTimeout;
  // How long a server keeps a connection without a call: members have streams on theirs.
  absl::Duration connection_idle = absl::Seconds(30);
};

// For each server, before it is built.
void ApplyServerSettings(grpc::ServerBuilder* builder, const GrpcLimits& limits = {});

// For each channel.
grpc::ChannelArguments ChannelSettings(const GrpcLimits& limits = {});

// A channel with those settings; connects when it is first used. `target`: "host:port",
// "[IPv6]:port", "unix:/path". `tls`: of TCP; without files there is none.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, const TlsFiles& tls = {},
                                           const GrpcLimits& limits = {});

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_SETTINGS_H_
