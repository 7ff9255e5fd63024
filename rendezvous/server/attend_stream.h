#ifndef DDPRUN_RENDEZVOUS_SERVER_ATTEND_STREAM_H_
#define DDPRUN_RENDEZVOUS_SERVER_ATTEND_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/progress_page.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/server/call_registry.h"

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

// Limits of a stream. A time limit begins anew if this process was too late for it itself.
struct StreamLimits {
  // What may wait to be written to one agent.
  size_t queued_messages = 256;
  size_t queued_bytes = 16U << 20;
  // How long a new stream may take to send its first message.
  absl::Duration first_message = absl::Seconds(10);
  // How long the end of a stream may wait for a peer that doesn't read.
  absl::Duration close = absl::Seconds(2);
};

// One agent's stream on the service's side.
//
// gRPC's threads run the reactions (On…Done, OnCancel), which only parse, validate and post. All
// state is the loop's, and the loop starts every operation. gRPC promises no order of reactions, so
// a read may be reported before the write that it answers. One message is read at a time, and the
// next only after the loop took it: a peer that floods fills its own window, not our memory.
//
// Life: made in a thread of gRPC's; holds itself until OnDone.
class AttendStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public OpenStream,
                           public std::enable_shared_from_this<AttendStream> {
 public:
  // The loop's side; all calls on the loop.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnStreamOpen(const std::shared_ptr<AttendStream>& stream) = 0;
    // A message, or why it is invalid. Followed by ReadNext() or Close().
    virtual void OnStreamMessage(AttendStream* stream, absl::StatusOr<AgentMessage> message) = 0;
    // The figures for people that came with a Renewal; called right before that message.
    virtual void OnStreamReport(AttendStream* stream, const AgentMessage& renewal,
                                const TrainingReport& training) = 0;
    // The first message didn't come in time.
    virtual void OnStreamSilent(AttendStream* stream) = 0;
    // The peer is gone, and may have missed messages; at most once. Followed by Close().
    virtual void OnStreamEnded(AttendStream* stream) = 0;
    // gRPC is done with the stream. Without OnStreamEnded before: the peer closed its side, or we
    // did. Always called, unless the owner ends before.
    virtual void OnStreamDone(AttendStream* stream) = 0;
  };

  // Called by gRPC for a new call. The stream lives on its own.
  // Threads: any.
  static AttendStream* Create(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
                              const std::shared_ptr<CallRegistry>& registry,
                              const StreamLimits& limits, grpc::CallbackServerContext* context);

  // ------------------------------------------------------------- the loop's

  StreamKey key() const { return key_; }
  void set_key(StreamKey key) { key_ = key; }
  // gRPC's name of the peer: "ipv4:10.0.0.1:4711".
  const std::string& peer() const { return peer_; }
  bool closing() const { return final_status_.has_value(); }

  // Queues a message. Returns false, and queues nothing, if too much waits already.
  bool Send(const ServiceMessage& message);
  // Queues an encoded message; streams that send the same message share its bytes.
  bool Send(grpc::ByteBuffer bytes);
  // Asks for the peer's next message.
  void ReadNext();
  // Ends the stream with the status; with `flush` after the queued messages. Only the first call
  // counts.
  void Close(const absl::Status& status, bool flush = true);
  // Ends the stream without waiting for anything; for the end of the server.
  void FinishNow(const absl::Status& status) override;

 private:
  AttendStream(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
               std::shared_ptr<CallRegistry> registry, const StreamLimits& limits,
               grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Post(void (AttendStream::*call)());
  void Open();
  void PeerFinished();
  void Ended();
  void Written(bool ok);
  void Advance();
  void LimitTo(absl::Duration time);
  void OnTimeout();

  EventLoop* const loop_;
  Owner* const owner_;  // used while the inbox is open
  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<CallRegistry> registry_;
  const StreamLimits limits_;
  grpc::CallbackServerContext* const context_;  // gRPC's; not to be touched after Finish
  const std::string peer_;
  std::shared_ptr<AttendStream> self_;  // until OnDone

  grpc::ByteBuffer incoming_;  // gRPC's between StartRead and OnReadDone
  // The fields below are the loop's.
  StreamKey key_;
  std::list<grpc::ByteBuffer> queue_;  // the first is gRPC's while writing_
  size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool heard_ = false;  // the first message came
  bool ended_ = false;
  bool finished_ = false;
  std::optional<absl::Status> final_status_;
  absl::Duration limit_;  // the time limit that ends at due_
  Instant due_;
  std::unique_ptr<Timer> timer_;  // for the first message, then for the end; null in between
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ATTEND_STREAM_H_
