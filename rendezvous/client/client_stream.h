#ifndef DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "base/event_loop.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/core/message.h"

namespace ddprun::rendezvous {

// One try of one Attend call. gRPC's threads convert and post; the owner hears of everything on the
// loop, in order, and nothing after Abandon().
//
// Lives until gRPC is done with it (OnDone), whoever still holds it.
// Threads: Send, Finish, Abandon on the loop; the On… methods are gRPC's.
class ClientStream final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ServiceMessage>,
                           public std::enable_shared_from_this<ClientStream> {
 public:
  struct Callbacks {
    std::function<void()> on_open;
    std::function<void(ServiceMessage)> on_message;
    std::function<void(absl::Status)> on_closed;  // the last one
  };

  static std::shared_ptr<ClientStream> Start(EventLoop* loop, v1::Rendezvous::Stub* stub,
                                             Callbacks callbacks);

  // Queues a message. At most 1024 wait; false and the end of the stream beyond.
  bool Send(const AgentMessage& message);
  // Half-closes after what is queued.
  void Finish();
  // Cancels the call, drops what is posted, and waits until gRPC is done with it (some ms at most,
  // since a cancelled call ends locally).
  void Abandon();

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  ClientStream(EventLoop* loop, Callbacks callbacks)
      : loop_(loop), callbacks_(std::move(callbacks)) {}
  void PostToOwner(std::function<void(const Callbacks&)> call);
  void StartNextWrite();  // with mutex_ held

  EventLoop* const loop_;
  Callbacks callbacks_;     // of the loop's thread
  bool abandoned_ = false;  // of the loop's thread
  grpc::ClientContext context_;
  v1::ServiceMessage incoming_;         // of gRPC's threads, one at a time
  std::shared_ptr<ClientStream> self_;  // until OnDone
  absl::Notification done_;

  std::mutex mutex_;  // guards what follows
  std::deque<v1::AgentMessage> outgoing_;
  bool writing_ = false;  // outgoing_.front()
  bool finishing_ = false;
  bool half_closed_ = false;
  bool ended_ = false;
  absl::Status broken_;  // a message that can't be understood ended the stream
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CLIENT_STREAM_H_
