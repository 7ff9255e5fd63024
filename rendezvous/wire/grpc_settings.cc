#include "rendezvous/wire/grpc_settings.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/fd.h"
#include "base/log.h"
#include "rendezvous/wire/field_checker.h"
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

namespace {

constexpr size_t kStatusTextBytesMax = 1024;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          CutText(status.message(), kStatusTextBytesMax)};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // A peer may send any number; an unknown code becomes UNKNOWN.
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return {known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          status.error_message()};
}

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

namespace {

// Printed once: no connection comes in any more, and no other message says why.
void NotifyOfMissingDescriptors() {
  static std::once_flag once;
  std::call_once(once, [] {
    Notify(absl::StrCat(
        "error: this process has no file descriptor left for a new connection (its limit: ",
        RaiseDescriptorLimit(), "): agents can't join; raise the hard limit, ulimit -Hn"));
  });
}

// gRPC's own errors add nothing to our statuses; a user sees them with LOGLEVEL=INFO.
void LogFromGrpc(gpr_log_func_args* args) {
  // gRPC logs failures of single calls as errors, which their callers handle. Its last message
  // before an abort is a real error.
  if (absl::StrContains(args->message, "Too many open files")) NotifyOfMissingDescriptors();
  const bool last_words = absl::StartsWith(args->message, "assertion failed");
  Log(last_words                                 ? LogLevel::kError
      : args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kInfo
                                                 : LogLevel::kDebug,
      absl::StrCat("grpc: ", args->message));
}

// A call that is never started, and so keeps the threads that run reactions. They live as long as
// some channel or server of the process uses them. The last user joins them; if it runs on one of
// these threads, it joins itself, and the process dies of "assertion failed: prior > 0" (gRPC 1.51,
// CallbackAlternativeCQ::Unref). Our calls end on those threads, so there must be no last user.
struct KeptCallbackThreads {
  class Reactor final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {};

  KeptCallbackThreads() {
    stub.PrepareBidiStreamingCall(&context, "/never/started", grpc::StubOptions(), &reactor);
  }

  grpc::GenericStub stub{grpc::CreateChannel("", nullptr)};  // "lame": it can't connect
  grpc::ClientContext context;
  Reactor reactor;
};

// A variable of the environment, unless the user has set it.
class SetForNow {
 public:
  SetForNow(const char* name, const char* value)
      : name_(std::getenv(name) == nullptr ? name : nullptr) {
    if (name_ != nullptr) setenv(name_, value, 1);
  }
  ~SetForNow() {
    if (name_ != nullptr) unsetenv(name_);
  }
  SetForNow(const SetForNow&) = delete;
  SetForNow& operator=(const SetForNow&) = delete;

 private:
  const char* const name_;  // null: the user has set it
};

void Initialize() {
  // Turns off Abseil's deadlock detection, which distributions leave on: each lock of a mutex takes
  // a global one and looks for cycles. It took a seventh of a service's time with thousands of
  // agents.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Protobuf would print a line to stderr for each string on the wire that isn't UTF-8, so a peer
  // could flood the log.
  google::protobuf::SetLogHandler(nullptr);
  if (std::getenv("GRPC_VERBOSITY") == nullptr && std::getenv("GRPC_TRACE") == nullptr) {
    gpr_set_log_function(LogFromGrpc);
  }
  {
    // These settings exist only as environment variables, and workers must not inherit them.
    const SetForNow resolver("GRPC_DNS_RESOLVER", "native");
    // Otherwise gRPC 1.51 reads into 8 KiB at a time, whatever GRPC_ARG_TCP_READ_CHUNK_SIZE says.
    const SetForNow experiments("GRPC_EXPERIMENTS", "-tcp_read_chunks");
    grpc_init();  // never shut down, because other code may still use its threads
  }
  // Never destroyed, and in static memory, where a leak checker finds its pointers.
  alignas(KeptCallbackThreads) static std::byte kept[sizeof(KeptCallbackThreads)];
  new (kept) KeptCallbackThreads;
}

}  // namespace

void InitializeGrpc() {
  static std::once_flag once;
  std::call_once(once, Initialize);
}

}  // namespace ddprun::rendezvous
