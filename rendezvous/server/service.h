#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/server/attend_stream.h"
#include "rendezvous/server/call_registry.h"
#include "rendezvous/server/event_watch.h"

namespace ddprun::rendezvous {

// The latest status of all jobs, for every caller that asks while it is fresh, without the loop. A
// status that took less than kQuick to make is never reused. Any other is fresh for kShare times
// the time that making it took, at most kAgeMax: so a large job loses little time to frequent
// calls. Threads: any.
class StatusBoard {
 public:
  static constexpr absl::Duration kAgeMax = absl::Milliseconds(500);
  static constexpr int kShare = 50;
  static constexpr absl::Duration kQuick = absl::Milliseconds(1);

  using Snapshot = std::shared_ptr<const v1::GetStatusReply>;

  // Returns null if there is no status, or it is too old.
  Snapshot Fresh(Instant now) const;
  // Params: cost: the processor time that making it took.
  void Put(Snapshot snapshot, Instant now, absl::Duration cost);

 private:
  mutable std::mutex mutex_;
  Snapshot snapshot_;  // nullptr before the first
  Instant until_;      // end of its freshness
};

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
