#include "rendezvous/wire/initialize_grpc.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/fd.h"
#include "base/log.h"

namespace ddprun::rendezvous {
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
