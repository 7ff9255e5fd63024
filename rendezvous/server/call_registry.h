#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_

#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/server/core/call_budget.h"
#include "rendezvous/server/core/doorkeeper.h"

namespace ddprun::rendezvous {

// Calls at a time on one connection: agents and commands have one each.
inline constexpr size_t kStreamsPerConnection = 4;
// Calls at a time on a connection of an unauthenticated peer. gRPC enforces its bound only for
// clients that have acknowledged it, so a peer with more than twice as many violates the protocol.
inline constexpr size_t kStrangersCallsMax = 2 * kStreamsPerConnection;
// An agent has one stream and up to two for heartbeats, and as many again while it comes back. The
// rest is for strangers, which have a bounded number of connections.
inline constexpr size_t kStreamsMax = 6 * size_t{kNodesMax} + kStrangersMax * kStrangersCallsMax;
inline constexpr size_t kUnaryCallsMax = 1024;  // calls for people that wait for the loop
inline constexpr size_t kWatchesMax = 256;      // streams for people

// The caller of a call.
struct Caller {
  std::string peer;      // gRPC's name
  std::string address;   // callers with the same one share a bound; "" = not over TCP
  bool trusted = false;  // has the token or, if there is none, is on this machine
};
Caller CallerOf(absl::string_view peer, bool trusted);

// The status for a stranger's call beyond the allowance of its address.
absl::Status TooManyCalls();

// A stream that the server must be able to end.
class OpenStream {
 public:
  enum class Kind { kAgent, kWatch };
  virtual ~OpenStream() = default;
  // Ends the stream at once with the status; only the first call counts. Threads: the loop's.
  virtual void FinishNow(const absl::Status& status) = 0;
};

// All unanswered calls from gRPC. Every one must be finished before the server can end, also one
// that arrives while the loop ends the server.
//
// A call over TCP is a stranger's unless its caller is trusted. Strangers have at most
// kStrangersCallsMax calls on one connection, half of the places for people's calls, and a quarter
// of them from one address. Threads: any.
class CallRegistry {
 public:
  // Params: on_flood: called with the peer of a connection each time it asks for too many calls;
  // stranger_every: how long until an address that has spent its allowance may call again.
  explicit CallRegistry(std::function<void(const std::string& peer)> on_flood = nullptr,
                        absl::Duration stranger_every = CallBudget::kEvery)
      : on_flood_(std::move(on_flood)), budget_(stranger_every) {}

  // Counts a stranger's call before it is handled. Returns false if its address has spent its
  // allowance. Trusted callers, and those that don't come over TCP, are always allowed.
  bool Charge(const Caller& caller);

  // Registers a stream. Errors: UNAVAILABLE: too many calls at the moment, or the service is
  // ending; the stream must finish itself then.
  absl::Status Add(OpenStream::Kind kind, const std::shared_ptr<OpenStream>& stream,
                   const Caller& caller);
  // The stream is a member's. Ignored unless the stream is open.
  void Known(OpenStream* stream);
  // gRPC is done with the stream, refused or not.
  void Remove(OpenStream* stream);
  // Registers a unary call. Returns the number by which the loop takes it; if it is refused,
  // finishes it and returns 0.
  uint64_t Add(grpc::ServerUnaryReactor* call, const Caller& caller);
  // Returns the call to answer; null if it was answered already.
  grpc::ServerUnaryReactor* Take(uint64_t number);

  struct Open {
    std::vector<std::shared_ptr<OpenStream>> streams;
    std::vector<grpc::ServerUnaryReactor*> calls;
  };
  // Refuses further calls, and returns the open ones.
  Open Close();
  // Waits until gRPC is done with all streams. Returns false if that takes longer than `limit`.
  bool WaitUntilDone(absl::Duration limit);

 private:
  // The open calls of a kind.
  struct Tally {
    size_t most;
    size_t strangers_most;
    size_t address_most;
    size_t open = 0;
    size_t strangers = 0;                                // of these
    absl::flat_hash_map<std::string, size_t> addresses;  // strangers by address; no entry is 0
  };
  static Tally ForPeople(size_t most) {
    return {.most = most, .strangers_most = most / 2, .address_most = most / 4};
  }

  Tally& Of(OpenStream::Kind kind) { return kind == OpenStream::Kind::kAgent ? agents_ : watches_; }
  absl::Status Admit(const Tally& tally, const Caller& caller, bool* flood) const;
  void Count(Tally& tally, const Caller& caller);
  void Discount(Tally& tally, const Caller& caller);
  void DiscountStranger(Tally& tally, const Caller& caller);
  absl::Status Refuse(absl::Status status, const Caller& caller, bool flood);

  const std::function<void(const std::string& peer)> on_flood_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool closed_ = false;
  uint64_t last_number_ = 0;
  struct Entry {
    OpenStream::Kind kind;
    std::shared_ptr<OpenStream> stream;
    Caller caller;
  };
  std::map<OpenStream*, Entry> streams_;
  std::set<OpenStream*> refused_;  // finished by themselves; gRPC isn't done with them
  std::map<uint64_t, std::pair<grpc::ServerUnaryReactor*, Caller>> calls_;
  Tally agents_{.most = kStreamsMax, .strangers_most = kStreamsMax, .address_most = kStreamsMax};
  Tally watches_ = ForPeople(kWatchesMax);
  Tally unary_ = ForPeople(kUnaryCallsMax);
  absl::flat_hash_map<std::string, size_t> connections_;  // of strangers; no entry is 0
  CallBudget budget_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_
