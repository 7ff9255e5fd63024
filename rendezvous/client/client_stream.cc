#include "rendezvous/client/client_stream.h"

#include <utility>

#include "absl/status/statusor.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::rendezvous {
namespace {

// An agent has a handful of messages under way; so many mean that the service takes none.
constexpr size_t kOutgoingMax = 1024;

}  // namespace

std::shared_ptr<ClientStream> ClientStream::Start(EventLoop* loop, v1::Rendezvous::Stub* stub,
                                                  Callbacks callbacks) {
  std::shared_ptr<ClientStream> stream(new ClientStream(loop, std::move(callbacks)));
  stream->self_ = stream;
  stub->async()->Attend(&stream->context_, stream.get());
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

bool ClientStream::Send(const AgentMessage& message) {
  const std::lock_guard lock(mutex_);
  if (ended_ || finishing_) return false;
  if (outgoing_.size() >= kOutgoingMax) {
    context_.TryCancel();
    return false;
  }
  outgoing_.push_back(ToProto(message));
  StartNextWrite();
  return true;
}

void ClientStream::Finish() {
  const std::lock_guard lock(mutex_);
  if (ended_ || finishing_) return;
  finishing_ = true;
  StartNextWrite();
}

void ClientStream::StartNextWrite() {
  if (ended_ || half_closed_ || writing_) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  } else if (finishing_) {
    half_closed_ = true;
    StartWritesDone();
  }
}

void ClientStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_.pop_front();
  if (ok) StartNextWrite();
}

void ClientStream::Abandon() {
  abandoned_ = true;
  context_.TryCancel();
  done_.WaitForNotification();
}

void ClientStream::PostToOwner(std::function<void(const Callbacks&)> call) {
  loop_->Post([self = shared_from_this(), call = std::move(call)] {
    if (self->abandoned_) return;
    // A callback may drop the owner, and with it this stream; `self` keeps it to the end.
    call(self->callbacks_);
  });
}

void ClientStream::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;  // OnDone has the reason
  PostToOwner([](const Callbacks& owner) { owner.on_open(); });
}

void ClientStream::OnReadDone(bool ok) {
  if (!ok) return;
  absl::StatusOr<ServiceMessage> message = FromProto(incoming_);
  if (!message.ok()) {
    {
      const std::lock_guard lock(mutex_);
      broken_ = message.status();
    }
    context_.TryCancel();
    return;
  }
  PostToOwner(
      [message = *std::move(message)](const Callbacks& owner) { owner.on_message(message); });
  StartRead(&incoming_);
}

void ClientStream::OnDone(const grpc::Status& status) {
  absl::Status reason = FromGrpcStatus(status);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (!broken_.ok()) reason = broken_;
  }
  PostToOwner([reason](const Callbacks& owner) { owner.on_closed(reason); });
  // After the notification the loop may be gone; only what `self` holds may be touched.
  const std::shared_ptr<ClientStream> self = std::move(self_);
  done_.Notify();
}

}  // namespace ddprun::rendezvous
