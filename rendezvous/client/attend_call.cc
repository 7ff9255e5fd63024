#include "rendezvous/client/attend_call.h"

#include <utility>

#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/training.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kMethod[] = "/ddprun.rendezvous.v1.Rendezvous/Attend";

absl::StatusOr<ServiceMessage> Parse(const grpc::ByteBuffer& bytes) {
  v1::ServiceMessage proto;
  if (!ParseBytes(bytes, &proto)) {
    return absl::InvalidArgumentError("the bytes are no message of this protocol");
  }
  return FromProto(proto);
}

}  // namespace

std::shared_ptr<AttendCall> AttendCall::Start(Owner* owner, std::shared_ptr<LoopInbox> inbox,
                                              std::shared_ptr<grpc::Channel> channel) {
  std::shared_ptr<AttendCall> call(new AttendCall(owner, std::move(inbox), std::move(channel)));
  call->self_ = call;
  call->AddHold();  // the loop starts operations outside of reactions
  call->StartRead(&call->incoming_);
  call->StartCall();
  return call;
}

AttendCall::AttendCall(Owner* owner, std::shared_ptr<LoopInbox> inbox,
                       std::shared_ptr<grpc::Channel> channel)
    : owner_(owner), inbox_(std::move(inbox)), channel_(std::move(channel)), stub_(channel_) {
  stub_.PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
}

// ------------------------------------------------------------- gRPC's threads

void AttendCall::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;  // OnDone says why
  inbox_->Post([self = shared_from_this()] { self->owner_->OnCallOpen(self.get()); });
}

void AttendCall::OnReadDone(bool ok) {
  if (!ok) {
    inbox_->Post([self = shared_from_this()] { self->EndOperations(); });
    return;
  }
  inbox_->Post([self = shared_from_this(), message = Parse(incoming_)] {
    self->owner_->OnCallMessage(self.get(), message);
  });
}

void AttendCall::OnWriteDone(bool ok) {
  inbox_->Post([self = shared_from_this(), ok] { self->Written(ok); });
}

void AttendCall::OnDone(const grpc::Status& status) {
  inbox_->Post(
      [self = shared_from_this(), status] { self->owner_->OnCallDone(self.get(), status); });
  self_.reset();  // may destroy this
}

// ------------------------------------------------------------- the loop

bool AttendCall::Write(const AgentMessage& message, const TrainingReport& training) {
  if (queue_.size() >= kOutgoingMessagesMax) return false;
  if (over_ || half_close_) return true;  // too late: the call is ending
  v1::AgentMessage proto = ToProto(message);
  if (training != TrainingReport()) {
    *proto.mutable_renewal()->mutable_training() = ToProto(training);
  }
  queue_.push_back(ToBytes(proto));
  Advance();
  return true;
}

void AttendCall::Written(bool ok) {
  writing_ = false;
  queue_.pop_front();
  if (!ok) queue_.clear();  // the service is gone; OnDone says why
  Advance();
}

void AttendCall::ReadNext() {
  if (!over_) StartRead(&incoming_);
}

void AttendCall::HalfClose() {
  half_close_ = true;
  Advance();
}

void AttendCall::Advance() {
  if (over_ || writing_) return;
  if (!queue_.empty()) {
    writing_ = true;
    return StartWrite(&queue_.front());
  }
  if (half_close_ && !std::exchange(half_closed_, true)) StartWritesDone();
}

void AttendCall::EndOperations() {
  if (!std::exchange(over_, true)) RemoveHold();
}

void AttendCall::Abandon() {
  context_.TryCancel();
  EndOperations();
}

}  // namespace ddprun::rendezvous
