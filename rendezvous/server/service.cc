#include "rendezvous/server/service.h"

#include <utility>

#include "base/clock.h"
#include "rendezvous/wire/grpc_status.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {

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
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  const std::string peer(context->peer());
  // Whether the job is there at all, the loop knows; and it counts who may not read.
  if (StatusBoard::Snapshot fresh = board_->Fresh(MonotonicNow());
      fresh != nullptr && request->run_id().empty() && owner_->MayRead(request->token(), peer)) {
    *reply = PageOf(*fresh, *request);
    call->Finish(grpc::Status::OK);
    return call;
  }
  return Answer(call, [this, request, reply, peer] {
    const absl::StatusOr<StatusBoard::Snapshot> status = owner_->OnGetStatus(*request, peer);
    if (status.ok()) *reply = PageOf(**status, *request);
    return status.status();
  });
}

grpc::ServerUnaryReactor* Service::StopJob(grpc::CallbackServerContext* context,
                                           const v1::StopJobRequest* request,
                                           v1::StopJobReply* /*reply*/) {
  return Answer(context->DefaultReactor(), [this, request, peer = std::string(context->peer())] {
    return owner_->OnStopJob(*request, peer);
  });
}

grpc::ServerUnaryReactor* Service::DrainNode(grpc::CallbackServerContext* context,
                                             const v1::DrainNodeRequest* request,
                                             v1::DrainNodeReply* reply) {
  return Answer(context->DefaultReactor(),
                [this, request, reply, peer = std::string(context->peer())] {
                  return owner_->OnDrainNode(*request, peer, reply);
                });
}

grpc::ServerWriteReactor<v1::JobEvents>* Service::WatchEvents(
    grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) {
  return EventWatch::Create(owner_, inbox_, registry_, *request, std::string(context->peer()));
}

grpc::ServerUnaryReactor* Service::Answer(grpc::ServerUnaryReactor* call,
                                          std::function<absl::Status()> handle) {
  const uint64_t number = registry_->Add(call);
  if (number == 0) return call;
  inbox_->Post([registry = registry_, number, handle = std::move(handle)] {
    // Before anything of the call is touched: its end frees request and reply.
    grpc::ServerUnaryReactor* open = registry->Take(number);
    if (open != nullptr) open->Finish(ToGrpcStatus(handle()));
  });
  return call;
}

}  // namespace ddprun::rendezvous
