#include "rendezvous/server/attend_stream.h"

#include <grpcpp/server_context.h>

#include <iterator>
#include <utility>

#include "base/instant.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/training.h"

namespace ddprun::rendezvous {
namespace {

// A verdict has two forms, sent by turns; older messages were sent to all.
constexpr size_t kRememberedMax = 4;

}  // namespace

grpc::ByteBuffer EncodedMessages::Encode(const SharedMessage& message) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.message.expired(); });
  for (const Entry& entry : entries_) {
    if (entry.message.lock() == message) return entry.bytes;
  }
  ++count_;
  grpc::ByteBuffer bytes = ToBytes(ToProto(*message));
  if (message.use_count() == 1) return bytes;  // no other stream gets it
  if (entries_.size() == kRememberedMax) entries_.pop_front();
  entries_.push_back({.message = message, .bytes = bytes});
  return bytes;
}

namespace {

struct Received {
  absl::StatusOr<AgentMessage> message;
  TrainingReport training = {};
};

Received Parse(const grpc::ByteBuffer& bytes) {
  v1::AgentMessage proto;
  if (!ParseBytes(bytes, &proto)) {
    return {absl::InvalidArgumentError("the bytes are no message of this protocol")};
  }
  return {FromProto(proto), FromProto(proto.renewal().training())};
}

}  // namespace

AttendStream* AttendStream::Create(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
                                   const std::shared_ptr<CallRegistry>& registry,
                                   const StreamLimits& limits,
                                   grpc::CallbackServerContext* context) {
  const std::shared_ptr<AttendStream> stream(
      new AttendStream(loop, owner, std::move(inbox), registry, limits, context));
  stream->self_ = stream;
  if (const absl::Status status = registry->Add(OpenStream::Kind::kAgent, stream,
                                                CallerOf(stream->peer_, /*trusted=*/false));
      !status.ok()) {
    stream->ended_ = true;  // the loop never learns of the stream, nor of its end
    stream->Finish(ToGrpcStatus(status));
    return stream.get();
  }
  // Sent at once, so that the agent learns that its stream is open before it sends anything.
  stream->StartSendInitialMetadata();
  stream->Post(&AttendStream::Open);
  return stream.get();
}

AttendStream::AttendStream(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
                           std::shared_ptr<CallRegistry> registry, const StreamLimits& limits,
                           grpc::CallbackServerContext* context)
    : loop_(loop),
      owner_(owner),
      inbox_(std::move(inbox)),
      registry_(std::move(registry)),
      limits_(limits),
      context_(context),
      peer_(context->peer()) {}

// ------------------------------------------------------------- gRPC's threads

void AttendStream::Post(void (AttendStream::*call)()) {
  inbox_->Post([self = shared_from_this(), call] { (self.get()->*call)(); });
}

void AttendStream::OnReadDone(bool ok) {
  if (!ok) return Post(&AttendStream::PeerFinished);
  inbox_->Post([self = shared_from_this(), received = Parse(incoming_)] {
    if (self->closing()) return;
    if (!std::exchange(self->heard_, true)) self->timer_.reset();
    if (received.message.ok() && std::holds_alternative<Renewal>(received.message->body)) {
      self->owner_->OnStreamReport(self.get(), *received.message, received.training);
    }
    self->owner_->OnStreamMessage(self.get(), received.message);
  });
}

void AttendStream::OnWriteDone(bool ok) {
  inbox_->Post([self = shared_from_this(), ok] { self->Written(ok); });
}

void AttendStream::OnCancel() { Post(&AttendStream::Ended); }

void AttendStream::OnDone() {
  inbox_->Post([self = shared_from_this()] { self->owner_->OnStreamDone(self.get()); });
  registry_->Remove(this);
  self_.reset();  // may destroy this
}

// ------------------------------------------------------------- the loop

void AttendStream::Open() {
  LimitTo(limits_.first_message);
  owner_->OnStreamOpen(shared_from_this());
}

void AttendStream::ReadNext() {
  if (!finished_) StartRead(&incoming_);
}

bool AttendStream::Send(const ServiceMessage& message) { return Send(ToBytes(ToProto(message))); }

bool AttendStream::Send(grpc::ByteBuffer bytes) {
  if (closing()) return true;  // too late: the stream is ending
  const size_t size = bytes.Length();
  if (queue_.size() >= limits_.queued_messages || queued_bytes_ + size > limits_.queued_bytes)
    return false;
  queued_bytes_ += size;
  queue_.push_back(std::move(bytes));
  Advance();
  return true;
}

void AttendStream::Written(bool ok) {
  writing_ = false;
  queued_bytes_ -= queue_.front().Length();
  queue_.pop_front();
  if (!ok) {  // the peer is gone, which OnCancel reports as well
    queue_.clear();
    queued_bytes_ = 0;
  }
  Advance();
}

// The peer closed its side, or its stream was reset: OnCancel says which, before OnDone.
void AttendStream::PeerFinished() {
  if (!ended_) Close(absl::OkStatus());
}

void AttendStream::Ended() {
  if (std::exchange(ended_, true)) return;
  owner_->OnStreamEnded(this);
}

void AttendStream::Close(const absl::Status& status, bool flush) {
  if (closing()) return;
  final_status_ = status;
  if (!flush && !queue_.empty()) {
    queue_.erase(std::next(queue_.begin(), writing_ ? 1 : 0), queue_.end());
  }
  if (!finished_) LimitTo(limits_.close);
  Advance();
}

// Starts the next write, or ends the stream if nothing is left to write.
void AttendStream::Advance() {
  if (writing_ || finished_) return;
  if (!queue_.empty()) {
    writing_ = true;
    return StartWrite(&queue_.front());
  }
  if (closing()) FinishNow(*final_status_);
}

void AttendStream::FinishNow(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  if (!closing()) final_status_ = status;
  timer_.reset();
  Finish(ToGrpcStatus(*final_status_));
}

void AttendStream::LimitTo(absl::Duration time) {
  if (timer_ == nullptr) timer_ = std::make_unique<Timer>(loop_, [this] { OnTimeout(); });
  limit_ = time;
  due_ = loop_->Now() + time;
  timer_->Arm(due_);
}

void AttendStream::OnTimeout() {
  // If this process was held up itself, the timeout proves nothing about the peer (R4): its
  // messages may be unread, here or in gRPC.
  if (loop_->Now() > due_ + kHeldUp) return LimitTo(limit_);
  if (!closing()) {
    if (!heard_) owner_->OnStreamSilent(this);
    return;
  }
  // The peer reads nothing, so it wouldn't get the status either.
  context_->TryCancel();
  FinishNow(*final_status_);
}

}  // namespace ddprun::rendezvous
