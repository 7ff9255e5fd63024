#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/loop_inbox.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/server/attend_stream.h"
#include "rendezvous/server/call_registry.h"
#include "rendezvous/server/event_watch.h"
#include "rendezvous/server/status_board.h"

namespace ddprun::rendezvous {

// The methods of the proto as gRPC calls them on its threads: registers each call and posts it to
// the loop.
class Service final
    : public v1::Rendezvous::WithRawCallbackMethod_Attend<
          v1::Rendezvous::WithCallbackMethod_GetStatus<v1::Rendezvous::WithCallbackMethod_StopJob<
              v1::Rendezvous::WithCallbackMethod_DrainNode<
                  v1::Rendezvous::WithCallbackMethod_WatchEvents<v1::Rendezvous::Service>>>>> {
 public:
  // The loop's side of the calls.
  class Owner : public AttendStream::Owner, public EventWatch::Owner {
   public:
    // Whether this peer may read with this token. Threads: any.
    virtual bool MayRead(const std::string& token, const std::string& peer) const = 0;
    // Whether only the bounds for all callers apply: the caller has the job's token or, if jobs
    // have none, is on this machine. Threads: any.
    virtual bool IsTrusted(const std::string& token, const std::string& peer) const = 0;
    // The status of all jobs, not only of the requested ones. Errors: NOT_FOUND; UNAUTHENTICATED.
    virtual absl::StatusOr<StatusBoard::Snapshot> OnGetStatus(const v1::GetStatusRequest& request,
                                                              const std::string& peer) = 0;
    virtual absl::Status OnStopJob(const v1::StopJobRequest& request, const std::string& peer) = 0;
    virtual absl::Status OnDrainNode(const v1::DrainNodeRequest& request, const std::string& peer,
                                     v1::DrainNodeReply* reply) = 0;
  };

  Service(EventLoop* loop, Owner* owner, std::shared_ptr<LoopInbox> inbox,
          std::shared_ptr<CallRegistry> registry, std::shared_ptr<StatusBoard> board,
          const StreamLimits& limits = {});

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusReply* reply) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest* request,
                                    v1::StopJobReply* reply) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeReply* reply) override;
  grpc::ServerWriteReactor<v1::JobEvents>* WatchEvents(
      grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) override;

 private:
  Caller CallerOf(const grpc::CallbackServerContext& context, const std::string& token) const;
  // Answers the caller with what `handle` returns on the loop.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Caller& caller,
                                   std::function<absl::Status()> handle);

  EventLoop* const loop_;
  Owner* const owner_;  // used while the inbox is open
  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<CallRegistry> registry_;
  const std::shared_ptr<StatusBoard> board_;
  const StreamLimits limits_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
