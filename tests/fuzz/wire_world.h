#ifndef DDPRUN_TESTS_FUZZ_WIRE_WORLD_H_
#define DDPRUN_TESTS_FUZZ_WIRE_WORLD_H_

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/server/rendezvous_server.h"
#include "tests/support/raw_stream.h"

namespace ddprun::rendezvous {

// A service in this process, a job that somebody with the token runs there, and ways to say
// anything to it. Threads: the loop's.
class WireWorld {
 public:
  // Params: token: of the service; "" = it wants none.
  explicit WireWorld(std::string token);
  ~WireWorld();
  WireWorld(const WireWorld&) = delete;
  WireWorld& operator=(const WireWorld&) = delete;

  // The result of a call.
  struct Answer {
    absl::Status status;
    grpc::ByteBuffer bytes;
  };

  const std::string& token() const { return token_; }
  // The host of the job's node, which no unauthenticated peer may learn.
  static const char* secret() { return "host-good"; }
  // The run id of the job that is there.
  const std::string& run_id() const { return run_id_; }
  uint64_t term() const { return server_->term().value(); }
  size_t refusal_kinds() const { return server_->refusals().size(); }

  std::unique_ptr<RawStream> Open();
  bool Until(const std::function<bool()>& done);
  // Calls a method ("StopJob") with these bytes. WatchEvents, which may go on for ever, is broken
  // off.
  Answer Call(const std::string& method, const std::string& request);
  // Makes a call that changes nothing, through the loop: after it, most earlier messages have been
  // handled. False: the service doesn't answer.
  bool Ping();
  // Returns what the service holds; nullopt: it doesn't answer. Params: run_id: a job that must be
  // among that, however new it is; "" = none.
  std::optional<v1::GetStatusReply> Status(const std::string& run_id = "");
  // Opens a connection, and says these bytes where a TLS or HTTP/2 handshake belongs.
  void Knock(const std::string& bytes);

  // Returns what has changed of the job since it began, and of what its agent heard; "" = nothing.
  std::string ChangeOfJob();
  // Brings the job back to its beginning: begins it anew if somebody with the token has ended it,
  // and the service, too, if it holds more than `most` jobs.
  void Renew(int most);

 private:
  class Flight;

  void Serve();
  void EndService();
  void BeginJob();
  v1::JobStatus JobNow();

  const std::unique_ptr<EventLoop> loop_;
  const google::protobuf::LogSilencer silencer_;  // protobuf logs each invalid UTF-8
  const std::string token_;
  EventLog events_;
  std::unique_ptr<RendezvousServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  uint64_t jobs_begun_ = 0;
  std::string run_id_;
  std::unique_ptr<RawStream> agent_;
  v1::JobStatus began_as_;
  size_t heard_ = 0;  // by agent_, but for probes
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_WIRE_WORLD_H_
