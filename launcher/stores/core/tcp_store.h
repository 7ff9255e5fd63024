#ifndef DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_H_
#define DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/strong.h"
#include "launcher/stores/core/tcp_store_parser.h"

namespace ddprun::launcher {

// The limits of one store. The protocol can't refuse a request, so a request beyond a limit ends
// its connection.
struct TcpStoreBounds {
  TcpStoreRequestBounds request;
  size_t keys = 1U << 20;  // queues count as one
  // Keys, values, awaited keys and incomplete requests together.
  size_t bytes = 1U << 30;
};

// Identifies a connection; never used twice.
using TcpConnectionId = Strong<struct TcpConnectionIdTag, uint64_t>;

// Bytes to send over a connection, or its end.
struct TcpStoreEffect {
  TcpConnectionId connection;
  std::string bytes;
  std::shared_ptr<const std::string> value;  // follows the bytes; shared with the store. Or null
  // Not OK: close this connection, which the store has forgotten; the text says why.
  absl::Status error;
};

// The store of one generation's Python workers: torch's TCPStore server, as bytes in and bytes out.
//
// Values and queues are separate, as in torch: a queue counts for WAIT and CHECK while it isn't
// empty, and each push wakes one waiting client. A WAIT is met when each of its keys has existed
// once, not necessarily all at the same moment. Only clients know their timeouts; they end a wait
// by CANCEL_WAIT.
//
// Two differences from torch's server, on which no client can rely: a request that torch answers
// with undefined behavior or an exception (ADD to a value that isn't a number) ends the connection
// with a text, and LIST_KEYS is sorted.
//
// Pure: no clock, I/O, thread or randomness; the same bytes give the same effects in the same order
// (the caller's own first, then those that it woke, oldest first). Threads: one at a time.
class TcpStore {
 public:
  explicit TcpStore(const TcpStoreBounds& bounds = {}) : bounds_(bounds) {}

  // Requires: a connection that was never open.
  void Open(TcpConnectionId connection);
  // Takes bytes from a connection, in pieces of any size, and returns the effects. Ignored unless
  // the connection is open.
  std::vector<TcpStoreEffect> Receive(TcpConnectionId connection, absl::string_view bytes);
  // The connection is gone, and its waits end. Ignored unless the connection is open.
  void Close(TcpConnectionId connection);
  // Whether the connection is open and has sent a request of the protocol.
  bool HasAsked(TcpConnectionId connection) const;
  // The number of the ping that began an open connection. torch's clients send their pid. nullopt =
  // no ping, as from clients older than torch 2.2.
  std::optional<uint32_t> PingOf(TcpConnectionId connection) const;

  size_t key_count() const { return values_.size(); }
  size_t waiter_count() const { return waits_.size(); }
  size_t connection_count() const { return connections_.size(); }
  size_t bytes() const { return bytes_; }

  // Aborts when an invariant is broken. Bound: linear in what the store holds; for tests.
  void CheckInvariants() const;

 private:
  using Value = std::shared_ptr<std::string>;

  // Grows with arrival, so the longest wait comes first.
  using WaitId = uint64_t;
  struct Wait {
    TcpConnectionId connection;
    std::vector<std::string> keys;  // those that were absent; distinct
    size_t missing = 0;             // of them, not seen since
  };
  struct Connection {
    explicit Connection(const TcpStoreRequestBounds& bounds) : parser(bounds) {}
    TcpStoreParser parser;
    std::optional<WaitId> wait;
    bool has_asked = false;
    std::optional<uint32_t> ping;
  };

  absl::Status Handle(TcpConnectionId connection, TcpStoreRequest request);
  absl::Status Set(TcpConnectionId connection, TcpStoreRequest request);
  absl::Status CompareSet(TcpConnectionId connection, TcpStoreRequest request);
  absl::Status Add(TcpConnectionId connection, const TcpStoreRequest& request);
  absl::Status Append(TcpConnectionId connection, TcpStoreRequest request);
  absl::Status Barrier(TcpConnectionId connection, const TcpStoreRequest& request);
  absl::Status WaitFor(TcpConnectionId connection, const std::vector<std::string>& keys);
  absl::Status QueuePush(TcpConnectionId connection, TcpStoreRequest request);
  void QueuePop(TcpConnectionId connection, const std::string& key);
  void Get(TcpConnectionId connection, const std::string& key);
  void Delete(TcpConnectionId connection, const std::string& key);
  void ListKeys(TcpConnectionId connection);

  bool IsThere(const std::string& key) const;
  absl::StatusOr<int64_t> Sum(const std::string& key, int64_t amount) const;
  absl::Status Put(const std::string& key, std::string value);
  absl::Status Reserve(size_t more, size_t less, bool new_key);
  absl::Status Watch(TcpConnectionId connection, std::vector<std::string> keys);
  void Unwatch(Connection* connection);
  void Wake(const std::string& key);
  void WakeOne(const std::string& key);
  void Seen(WaitId id);

  // Replies, in the order of the calls.
  void Reply(TcpConnectionId connection, absl::string_view bytes);
  void ReplyByte(TcpConnectionId connection, uint8_t byte);
  void ReplyNumber(TcpConnectionId connection, int64_t number);
  void ReplyText(TcpConnectionId connection, absl::string_view text);
  void ReplyValue(TcpConnectionId connection, const Value& value);

  TcpStoreBounds bounds_;
  std::vector<TcpStoreEffect> effects_;  // of the bytes that are being handled

  absl::flat_hash_map<std::string, Value> values_;
  absl::flat_hash_map<std::string, std::deque<Value>> queues_;  // none is empty
  std::map<TcpConnectionId, std::unique_ptr<Connection>> connections_;
  std::map<WaitId, Wait> waits_;
  absl::flat_hash_map<std::string, std::set<WaitId>> watchers_;  // by key; none is empty
  WaitId last_wait_ = 0;
  size_t bytes_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_CORE_TCP_STORE_H_
