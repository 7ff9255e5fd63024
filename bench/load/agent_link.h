#ifndef DDPRUN_BENCH_LOAD_AGENT_LINK_H_
#define DDPRUN_BENCH_LOAD_AGENT_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/loop_inbox.h"
#include "bench/load/link_bytes.h"
#include "rendezvous/client/attend_call.h"
#include "rendezvous/client/reconnect_pauses.h"

namespace ddprun::bench {

// What all links of a run share.
struct LinkPlace {
  EventLoop* loop = nullptr;
  std::shared_ptr<LoopInbox> inbox;
  int port = 0;              // of the service, on 127.0.0.1
  absl::Duration keepalive;  // as RendezvousClient has it
  bool heartbeats = true;    // a second connection (R4)
};

// One TCP connection with one Attend stream, opened again for as long as it is wanted, in the
// pauses of a real agent. It comes from an address of its own within 127.0.0.0/8, as agents of real
// nodes do: the service counts strangers by address (R9). gRPC can't choose it, so it is given the
// connection.
//
// Threads: the loop's. Lives as long as its inbox is open.
class AgentLink final : public rendezvous::AttendCall::Owner {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnLinkOpen(AgentLink* link) = 0;
    virtual void OnLinkMessage(AgentLink* link, rendezvous::ServiceMessage message) = 0;
    // It will be opened again, unless Rest() is called.
    virtual void OnLinkClosed(AgentLink* link) = 0;
  };

  // Params: host: number of the node that it comes from, < 2^22. patience: for the service's first
  // answer, doubled after each that did not come in time; infinite = none.
  AgentLink(const LinkPlace* place, uint32_t host, rendezvous::ReconnectSettings pauses,
            absl::Duration patience, Handler* handler);
  ~AgentLink() override;

  void Begin();
  void Write(const rendezvous::AgentMessage& message);
  void HalfClose();
  // Neither reads nor writes any more, and doesn't end either.
  void Freeze() { frozen_ = true; }
  // Ends the connection as the death of its process does, for good.
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
