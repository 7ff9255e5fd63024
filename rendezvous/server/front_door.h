#ifndef DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_
#define DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_

#include <grpcpp/server_builder.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "rendezvous/server/core/doorkeeper.h"
#include "rendezvous/server/refusals.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/tcp_listener.h"

namespace ddprun::rendezvous {

// Passes accepted connections to this service's agent, each in a packet of its own (base/packet.h).
// If the agent doesn't read for a while, connections wait in their order. Threads: the loop's.
class ConnectionSender {
 public:
  // Requires: `socket`, which stays the caller's, and the loop outlive the sender.
  ConnectionSender(EventLoop* loop, int socket);

  void Send(Fd connection);

 private:
  void SendWaiting();

  EventLoop* const loop_;
  const int socket_;
  const size_t waiting_max_;
  std::deque<std::vector<Fd>> waiting_;  // one connection each
  std::unique_ptr<FdWatch> writable_;    // null unless a connection waits
};

// Accepts a server's connections, and hands those that its Doorkeeper admits to gRPC.
//
// A connection goes to gRPC with its first byte: clients of HTTP/2 and of TLS send first, and an
// idle connection then costs two descriptors instead of a transport of gRPC's. For each stranger
// the door keeps a duplicate of the descriptor, to end the connection and to see its end. A
// member's connection has no duplicate. Threads: the loop's.
class FrontDoor {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  struct Options {
    DoorBounds bounds;
    // `acceptor` speaks TLS only: a client without TLS gets an answer that says so.
    bool wants_tls = false;
    // How long a connection may send nothing; as long as gRPC waits for a handshake.
    absl::Duration silent_at_most = absl::Seconds(10);
    // Takes the connections of clients of the workers' store, with all their bytes unread, if this
    // port is also the workers' MASTER_PORT. Null = there is no such store here.
    std::function<void(Fd connection)> on_store;
    // The server's name in messages.
    std::string server = "the rendezvous service";
  };

  // Accepts from now on. Requires: `loop`, `events` and `refusals` outlive the door, and it is
  // destroyed before the server of `acceptor` shuts down. Connections that gRPC has stay open.
  FrontDoor(EventLoop* loop, EventLog* events, Refusals* refusals, TcpListener listener,
            std::unique_ptr<Acceptor> acceptor, Options options);
  ~FrontDoor();
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  // The peer is known from now on, so its connection is no longer bounded. Params: peer: gRPC's
  // name of it; ignored unless it is a stranger.
  void Known(const std::string& peer);
  // Ends a stranger's connection and bans its address, because it opened more calls than HTTP/2's
  // settings allow. Params: as for Known.
  void TurnOut(const std::string& peer);

  size_t strangers() const { return keeper_.strangers(); }

 private:
  struct Guest {
    PeerAddress peer;
    Fd fd;
    std::unique_ptr<FdWatch> ended;   // of fd; destroyed before it
    Fd silent;                        // the connection until its first byte; then gRPC has it
    std::unique_ptr<FdWatch> speaks;  // of silent; destroyed before it
    std::unique_ptr<Timer> patience;  // silent_at_most; null once gRPC has the connection
  };

  void AcceptSome(int listener);
  bool AcceptOne(int listener);
  void Admit(Fd connection, Fd own, const PeerAddress& peer);
  void HandOver(Fd connection);
  void HearFirst(ConnectionId id);
  void PassToStore(ConnectionId id);
  void LosePatience(ConnectionId id);
  std::optional<ConnectionId> StrangerOf(const std::string& peer) const;
  void OutOfDescriptors(int error_number);
  void Evict(ConnectionId id);
  void End(ConnectionId id);
  void Drop(ConnectionId id);
  void WaitOrAccept();

  EventLoop* const loop_;
  EventLog* const events_;
  Refusals* const refusals_;
  const TcpListener listener_;
  const std::unique_ptr<Acceptor> acceptor_;
  const Options options_;
  Doorkeeper keeper_;
  uint64_t last_id_ = 0;
  std::map<ConnectionId, Guest> guests_;         // the strangers of keeper_
  std::map<PeerAddress, ConnectionId> by_peer_;  // the ids of guests_ by address and port
  Instant next_warning_;
  bool paused_ = false;
  Timer again_;
  std::vector<std::unique_ptr<FdWatch>> watches_;  // of the listener's sockets
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_
