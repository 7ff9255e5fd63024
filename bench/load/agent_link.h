#ifndef DDPRUN_BENCH_LOAD_AGENT_LINK_H_
#define DDPRUN_BENCH_LOAD_AGENT_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "bench/load/link_bytes.h"
#include "rendezvous/client/attend_call.h"
#include "rendezvous/client/reconnect_pauses.h"

namespace ddprun::bench {

// The settings that all links of a run share.
struct LinkPlace {
  EventLoop* loop = nullptr;
  std::shared_ptr<LoopInbox> inbox;
  int port = 0;              // of the service, on 127.0.0.1
  absl::Duration keepalive;  // as RendezvousClient has it
  bool heartbeats = true;    // a second connection (R4)
};

// One TCP connection with one Attend stream, opened again, with the pauses of a real agent, until
// Rest() or Cut(). Each link has a source address of its own within 127.0.0.0/8, like the agents of
// real nodes, because the service counts unauthenticated peers by address (R9). gRPC can't choose
// the source address, so it gets a connected socket.
//
// Threads: the loop's. Lives as long as its inbox is open.
class AgentLink final : public rendezvous::AttendCall::Owner {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnLinkOpen(AgentLink* link) = 0;
    virtual void OnLinkMessage(AgentLink* link, rendezvous::ServiceMessage message) = 0;
    // The link will be opened again, unless Rest() is called.
    virtual void OnLinkClosed(AgentLink* link) = 0;
  };

  // Params: host: number of the link's node, < 2^22. patience: for the service's first answer,
  // doubled after each answer that didn't come in time; infinite = no timeout.
  AgentLink(const LinkPlace* place, uint32_t host, rendezvous::ReconnectSettings pauses,
            absl::Duration patience, Handler* handler);
  ~AgentLink() override;

  void Begin();
  void Write(const rendezvous::AgentMessage& message);
  void HalfClose();
  // Stops reading and writing, without closing the connection.
  void Freeze() { frozen_ = true; }
  // Closes the connection for good, as the death of its process would.
  void Cut();
  // Ends the stream, until Begin() is called.
  void Rest();

  bool open() const { return call_ != nullptr && open_; }
  LinkBytes bytes() const;

 private:
  void Try();
  void OnConnected();
  void Retry();
  void OnTimeout();
  void OnCallOpen(rendezvous::AttendCall* call) override;
  void OnCallMessage(rendezvous::AttendCall* call,
                     absl::StatusOr<rendezvous::ServiceMessage> message) override;
  void OnCallDone(rendezvous::AttendCall* call, const grpc::Status& status) override;

  const LinkPlace* const place_;
  const uint32_t host_;
  const absl::Duration first_patience_;
  Handler* const handler_;
  rendezvous::ReconnectPauses pauses_;
  absl::Duration patience_;
  bool wanted_ = false;
  bool open_ = false;
  bool heard_ = false;
  bool frozen_ = false;
  Fd connecting_;
  std::unique_ptr<FdWatch> watch_;  // of connecting_
  int socket_ = -1;                 // gRPC's, while call_ is there
  std::shared_ptr<rendezvous::AttendCall> call_;
  Timer retry_;
  Timer timeout_;
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_AGENT_LINK_H_
