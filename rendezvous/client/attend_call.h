#ifndef DDPRUN_RENDEZVOUS_CLIENT_ATTEND_CALL_H_
#define DDPRUN_RENDEZVOUS_CLIENT_ATTEND_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/progress_page.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {

// Messages that may wait to be written to the service.
inline constexpr size_t kOutgoingMessagesMax = 1024;

// One try at an Attend stream, on the agent's side; the counterpart of server/attend_stream.h.
// gRPC's threads parse and post. The loop starts every operation, and a hold keeps the call open
// for that.
//
// Life: made by the loop; holds itself until OnDone. Threads: the loop's, except for the reactions.
class AttendCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public std::enable_shared_from_this<AttendCall> {
 public:
  // All calls on the loop, none after the inbox was closed.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The service took the call.
    virtual void OnCallOpen(AttendCall* call) = 0;
    virtual void OnCallMessage(AttendCall* call, absl::StatusOr<ServiceMessage> message) = 0;
    // The last call.
    virtual void OnCallDone(AttendCall* call, const grpc::Status& status) = 0;
  };

  static std::shared_ptr<AttendCall> Start(Owner* owner, std::shared_ptr<LoopInbox> inbox,
                                           std::shared_ptr<grpc::Channel> channel);

  // Queues a message. Returns false if too many wait. Params: training: sent beside a Renewal.
  bool Write(const AgentMessage& message, const TrainingReport& training = {});
  // Asks for the next message, after OnCallMessage.
  void ReadNext();
  // Closes our side after the queued messages.
  void HalfClose();
  // Breaks the call off; OnCallDone follows.
  void Cancel() { context_.TryCancel(); }
  // Cancels the call for an owner that is destroyed: no callback follows.
  void Abandon();

 private:
  AttendCall(Owner* owner, std::shared_ptr<LoopInbox> inbox,
             std::shared_ptr<grpc::Channel> channel);

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void Written(bool ok);
  void Advance();
  void EndOperations();

  Owner* const owner_;  // used while the inbox is open
  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::shared_ptr<AttendCall> self_;  // until OnDone

  grpc::ByteBuffer incoming_;  // gRPC's between StartRead and OnReadDone
  // The fields below are the loop's.
  std::deque<grpc::ByteBuffer> queue_;  // the first is gRPC's while writing_
  bool writing_ = false;
  bool half_close_ = false;   // wanted
  bool half_closed_ = false;  // started
  bool over_ = false;         // no operation may be started any more
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_ATTEND_CALL_H_
