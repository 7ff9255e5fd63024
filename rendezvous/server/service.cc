#include "rendezvous/server/service.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {

StatusBoard::Snapshot StatusBoard::Fresh(Instant now) const {
  const std::lock_guard lock(mutex_);
  return now < until_ ? snapshot_ : nullptr;
}

void StatusBoard::Put(Snapshot snapshot, Instant now, absl::Duration cost) {
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
  until_ = cost < kQuick ? now : now + std::min(kShare * cost, kAgeMax);
}

Service::Service(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
                 std::shared_ptr<CallRegistry> registry, std::shared_ptr<StatusBoard> board,
                 const StreamLimits& limits)
    : loop_(loop),
      owner_(owner),
      inbox_(std::move(inbox)),
      registry_(std::move(registry)),
      board_(std::move(board)),
      limits_(limits) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Service::Attend(
    grpc::CallbackServerContext* context) {
  return AttendStream::Create(loop_, owner_, inbox_, registry_, limits_, context);
}

grpc::ServerUnaryReactor* Service::GetStatus(grpc::CallbackServerContext* context,
                                             const v1::GetStatusRequest* request,
                                             v1::GetStatusReply* reply) {
  const Caller caller = CallerOf(*context, request->token());
  const auto answer = [this, request, reply, peer = caller.peer] {
    const absl::StatusOr<StatusBoard::Snapshot> status = owner_->OnGetStatus(*request, peer);
    if (status.ok()) *reply = PageOf(**status, *request);
    return status.status();
  };
  // A caller that may not read goes to the loop, which counts it and knows of jobs that the
  // snapshot lacks.
  const StatusBoard::Snapshot fresh = board_->Fresh(MonotonicNow());
  if (fresh == nullptr || !HasJob(*fresh, request->run_id()) ||
      !owner_->MayRead(request->token(), caller.peer)) {
    return Answer(context, caller, answer);
  }
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  const bool answered = registry_->Charge(caller);
  if (answered) *reply = PageOf(*fresh, *request);
  call->Finish(answered ? grpc::Status::OK : ToGrpcStatus(TooManyCalls()));
  return call;
}

grpc::ServerUnaryReactor* Service::StopJob(grpc::CallbackServerContext* context,
                                           const v1::StopJobRequest* request,
                                           v1::StopJobReply* /*reply*/) {
  const Caller caller = CallerOf(*context, request->token());
  return Answer(context, caller,
                [this, request, peer = caller.peer] { return owner_->OnStopJob(*request, peer); });
}

grpc::ServerUnaryReactor* Service::DrainNode(grpc::CallbackServerContext* context,
                                             const v1::DrainNodeRequest* request,
                                             v1::DrainNodeReply* reply) {
  const Caller caller = CallerOf(*context, request->token());
  return Answer(context, caller, [this, request, reply, peer = caller.peer] {
    return owner_->OnDrainNode(*request, peer, reply);
  });
}

grpc::ServerWriteReactor<v1::JobEvents>* Service::WatchEvents(
    grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) {
  return EventWatch::Create(owner_, inbox_, registry_, *request,
                            CallerOf(*context, request->token()));
}

Caller Service::CallerOf(const grpc::CallbackServerContext& context,
                         const std::string& token) const {
  const std::string peer(context.peer());
  return rendezvous::CallerOf(peer, owner_->IsTrusted(token, peer));
}

grpc::ServerUnaryReactor* Service::Answer(grpc::CallbackServerContext* context,
                                          const Caller& caller,
                                          std::function<absl::Status()> handle) {
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  if (!registry_->Charge(caller)) {
    call->Finish(ToGrpcStatus(TooManyCalls()));
    return call;
  }
  const uint64_t number = registry_->Add(call, caller);
  if (number == 0) return call;
  inbox_->Post([registry = registry_, number, handle = std::move(handle)] {
    // Checked before the call is used, because its end frees request and reply.
    grpc::ServerUnaryReactor* open = registry->Take(number);
    if (open != nullptr) open->Finish(ToGrpcStatus(handle()));
  });
  return call;
}

}  // namespace ddprun::rendezvous
