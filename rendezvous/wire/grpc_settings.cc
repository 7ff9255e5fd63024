#include "rendezvous/wire/grpc_settings.h"

#include <grpcpp/create_channel.h>

#include "rendezvous/wire/initialize_grpc.h"
#include "rendezvous/wire/tls.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kReconnectBackoffMin = absl::Milliseconds(100);
constexpr absl::Duration kReconnectBackoffMax = absl::Seconds(1);
constexpr absl::Duration kResolvePause = absl::Milliseconds(200);
constexpr absl::Duration kPingIntervalMin = absl::Milliseconds(500);
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
constexpr int kReadChunkBytes = 512;

int ToMilliseconds(absl::Duration time) {
  return static_cast<int>(absl::ToInt64Milliseconds(time));
}

}  // namespace

void ApplyServerSettings(grpc::ServerBuilder* builder, const GrpcLimits& limits) {
  InitializeGrpc();
  // Otherwise two servers may share a port, and half of the agents reach the wrong one.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes));
  builder->SetMaxSendMessageSize(static_cast<int>(limits.message_bytes));
  // Compressed messages are refused: a small one could unpack to gigabytes before its size is
  // checked.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ToMilliseconds(kServerKeepaliveTime));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              ToMilliseconds(kServerKeepaliveTimeout));
  // Pings of our clients are no attack (default: at most one in 5 minutes, two strikes).
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              ToMilliseconds(kPingIntervalMin));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Nothing is compressed, so that none of it need be kept for each call.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // Bounds for connections that send nothing or make no call, and for streams (defaults: 120 s, and
  // no bound for the others).
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              ToMilliseconds(limits.connection_idle));
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              ToMilliseconds(kHandshakeTimeout));
  // Otherwise each message costs a ping, its answer and a timer, to measure the data under way.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // gRPC's own statistics, which each connection keeps, aren't used.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  // The buffer for a connection's next bytes (default 8 KiB); it grows if more come.
  builder->AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              static_cast<int>(limits.streams_per_connection));
}

grpc::ChannelArguments ChannelSettings(const GrpcLimits& limits) {
  InitializeGrpc();
  grpc::ChannelArguments arguments;
  // Clusters set http_proxy for everything; through it not even 127.0.0.1 can be reached.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, ToMilliseconds(kReconnectBackoffMin));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, ToMilliseconds(kReconnectBackoffMax));
  // In spite of its name, the time limit of one attempt to connect (default 20 s).
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ToMilliseconds(limits.connect_timeout));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, ToMilliseconds(kResolvePause));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ToMilliseconds(limits.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToMilliseconds(kClientKeepaliveTimeout));
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);               // as the server
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0 = no limit; default 2
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(limits.message_bytes));
  // A name server must not change how calls behave.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // the callers know which calls may be repeated
  // Otherwise channels to one address share a connection, and its back-off.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target, const TlsFiles& tls,
                                           const GrpcLimits& limits) {
  grpc::ChannelArguments arguments = ChannelSettings(limits);
  const auto credentials = ChannelCredentialsOf(tls, target, &arguments);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

}  // namespace ddprun::rendezvous
