#ifndef DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_
#define DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_

#include <grpcpp/server_builder.h>

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

// Accepts a server's connections and gives them to gRPC, as far as a Doorkeeper lets them in.
//
// gRPC gets a connection with the first byte: a client of HTTP/2 and one of TLS speak first, and a
// crowd that says nothing costs little then. It cost so much that on a busy machine agents waited
// in the kernel's queue behind it for longer than an attempt to connect may take.
// Of each stranger's connection a second descriptor is kept: by it the connection is ended, and its
// end seen, because gRPC shuts a connection down before it closes it. A member's has none.
// Threads: the loop's.
class FrontDoor {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  struct Options {
    DoorBounds bounds;
    // `acceptor` speaks TLS only: who speaks without is told why it is refused.
    bool wants_tls = false;
    // How long a connection is kept that gRPC hasn't got: as gRPC waits for a handshake.
    absl::Duration silent_at_most = absl::Seconds(10);
    // Where this port is the workers' MASTER_PORT, too: takes the connections of clients of their
    // store, of which nothing was read. Null = there is no such store here.
    std::function<void(Fd connection)> on_store;
    // Whose door it is, for people.
    std::string server = "the rendezvous service";
  };

  // Accepts from now on. `loop`, `events` and `refusals` outlive it. Destroyed before the server
  // of `acceptor` shuts down; connections that it has stay open then.
  FrontDoor(EventLoop* loop, EventLog* events, Refusals* refusals, TcpListener listener,
            std::unique_ptr<Acceptor> acceptor, Options options);
  ~FrontDoor();
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  // Whose connection it is, is known from now on. `peer`: gRPC's name of it; others than the
  // strangers here are ignored.
  void Known(const std::string& peer);
  // Ends the connection, if it is a stranger's, and bans its address: it asks for more than it was
  // told that it may.
  void TurnOut(const std::string& peer);

  size_t strangers() const { return keeper_.strangers(); }

 private:
  struct Guest {
    PeerAddress peer;
    Fd fd;
    std::unique_ptr<FdWatch> ended;   // goes before fd
    Fd silent;                        // the connection itself, until it speaks; else gRPC's
    std::unique_ptr<FdWatch> speaks;  // goes before silent
    std::unique_ptr<Timer> patience;  // while silent is ours
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
  std::map<ConnectionId, Guest> guests_;         // the keeper's strangers
  std::map<PeerAddress, ConnectionId> by_peer_;  // of these
  Instant next_warning_;
  bool paused_ = false;
  Timer again_;
  std::vector<std::unique_ptr<FdWatch>> watches_;  // of the listener's sockets
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_FRONT_DOOR_H_
