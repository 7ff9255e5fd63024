#ifndef DDPRUN_TESTS_SUPPORT_RAW_STREAM_H_
#define DDPRUN_TESTS_SUPPORT_RAW_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/event_loop.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {

// An Attend stream that can send anything, for tests of what a service does with it. What comes
// back is collected on the loop. Threads: the loop's.
class RawStream {
 public:
  RawStream(EventLoop* loop, const std::shared_ptr<grpc::Channel>& channel, bool reads = true);
  ~RawStream();  // cancels
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  void SendBytes(const std::string& bytes);
  void Send(const v1::AgentMessage& message) { SendBytes(message.SerializeAsString()); }
  void Send(const AgentMessage& message) { Send(ToProto(message)); }
  void HalfClose();
  void Cancel();
  // Begins to read, if the stream was made without.
  void Read();

  bool open() const;
  bool done() const;
  // Valid when done.
  absl::Status status() const;
  const std::vector<v1::ServiceMessage>& received() const;
  size_t unsent() const;  // messages that gRPC has not taken yet
  // The last message of a kind, by has_…: Last(&v1::ServiceMessage::has_welcome).
  const v1::ServiceMessage* Last(bool (v1::ServiceMessage::*has)() const) const;

 private:
  class Call;
  std::shared_ptr<LoopInbox> inbox_;
  std::shared_ptr<Call> call_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SUPPORT_RAW_STREAM_H_
