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
  std::string host;             // its address's bytes
  std::optional<uint32_t> pid;  // as it says; nullopt = it doesn't
};

// The store of one generation's Python workers, at MASTER_ADDR:MASTER_PORT: answers clients of
// torch's TCPStore over TCP on the agent's loop (docs/PROTOCOL.md, W9). What a client does costs
// its own connection at most, with a line in the log. Connections that ask nothing are strangers,
// and bounded as the service's (R9): they keep no worker out, and leave the agent its descriptors.
// Threads: the loop's.
class TcpStoreServer {
 public:
  struct Options {
    TcpStoreBounds bounds;
    std::optional<rendezvous::DoorBounds> door;  // nullopt = what the process's descriptors allow
    // Connections of other machines are closed at once. Those of this one come from a loopback
    // address, or from the very address that they go to.
    bool this_machine_only = false;
    // Hears of each connection once, with its first request.
    std::function<void(const StoreClient&)> on_client;
    // The listener is a unix socket, on which the service passes connections on that it has
    // accepted (rendezvous/server/connection_sender.h).
    bool listener_passes_on = false;
  };

  // Serves an empty store on `listener`, a bound TCP socket or as options.listener_passes_on says,
  // which may be a duplicate of one that the caller keeps. Connections that were made and given up
  // before are dropped: they are of workers that have ended. Errors: UNAVAILABLE: another process
  // listens on the port. Requires: `loop` outlives the server.
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
  // Sends what the socket takes. False: the connection is broken.
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
  rendezvous::Doorkeeper keeper_;  // who has asked nothing; its ids are the connections'
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
