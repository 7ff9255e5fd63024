#ifndef DDPRUN_LAUNCHER_STORES_TCP_STORE_SERVER_H_
#define DDPRUN_LAUNCHER_STORES_TCP_STORE_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/stores/core/tcp_store.h"
#include "rendezvous/server/core/doorkeeper.h"

namespace ddprun::launcher {

// One connection of a program to the store.
struct StoreClient {
  bool of_this_machine = false;
  std::string host;             // the bytes of its address
  std::optional<uint32_t> pid;  // as the client claims; nullopt = no claim
};

// The store of one generation's Python workers, at MASTER_ADDR:MASTER_PORT: answers clients of
// torch's TCPStore over TCP on the agent's loop (docs/PROTOCOL.md, W9). An invalid request ends
// only its own connection, with a line in the log. Connections without a request are
// unauthenticated and bounded as the service's (R9), so that they neither keep workers out nor use
// up the agent's descriptors. Threads: the loop's.
class TcpStoreServer {
 public:
  struct Options {
    TcpStoreBounds bounds;
    std::optional<rendezvous::DoorBounds> door;  // nullopt = derived from the descriptor limit
    // Connections of other machines are closed at once. Connections of this machine come from a
    // loopback address, or from the address that they connect to.
    bool this_machine_only = false;
    // Called once for each connection, at its first request.
    std::function<void(const StoreClient&)> on_client;
    // The listener is a unix socket over which the service passes accepted connections
    // (rendezvous/server/front_door.h).
    bool listener_passes_on = false;
  };

  // Serves an empty store on `listener`, a bound TCP socket or the unix socket of
  // listener_passes_on; it may be a duplicate of one that the caller keeps. Connections that wait
  // there already are dropped, because they are of workers that have ended. Errors: UNAVAILABLE —
  // another process listens on the port. Requires: `loop` outlives the server.
  static absl::StatusOr<std::unique_ptr<TcpStoreServer>> Start(EventLoop* loop, Fd listener,
                                                               const Options& options);
  // Closes all connections; the values are gone.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  size_t connection_count() const { return connections_.size(); }

 private:
  struct Piece {
    std::string bytes;
    std::shared_ptr<const std::string> value;  // follows; or null
  };
  struct Connection {
    Fd socket;
    std::string peer;
    std::unique_ptr<FdWatch> watch;
    std::deque<Piece> unsent;
    size_t sent = 0;  // bytes of the first piece
  };

  TcpStoreServer(EventLoop* loop, Fd listener, const Options& options);

  Fd Accept(sockaddr_storage* peer);
  void DropAbandoned();
  void AcceptSome();
  void Add(Fd socket, const sockaddr_storage& peer);
  void Evict(std::optional<rendezvous::ConnectionId> stranger);
  void OnReady(TcpConnectionId id);
  void NotifyClient(TcpConnectionId id);
  void Apply(std::vector<TcpStoreEffect> effects);
  // Sends as much as the socket accepts. Returns false if the connection is broken.
  bool Flush(Connection* connection);
  void Close(TcpConnectionId id);
  void OutOfDescriptors(int error);
  void WaitOrAccept();
  void Note(const std::string& text);

  EventLoop* const loop_;
  Fd listener_;
  const bool this_machine_only_;
  const bool listener_passes_on_;
  TcpStore store_;
  rendezvous::Doorkeeper keeper_;  // limits connections without a request; same ids
  std::unique_ptr<FdWatch> accept_watch_;
  Timer accept_again_;
  std::function<void(const StoreClient&)> on_client_;
  bool accepting_ = true;
  std::map<TcpConnectionId, Connection> connections_;
  uint64_t last_connection_ = 0;
  uint32_t notes_ = 0;
  std::string buffer_;  // what was read last
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_TCP_STORE_SERVER_H_
