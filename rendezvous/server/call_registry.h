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

// On one connection: agents and commands have one each.
inline constexpr size_t kStreamsPerConnection = 4;
// The same of a stranger. gRPC holds only those to its bound who have said that they know it; who
// has more than twice as many as it told doesn't keep the protocol.
inline constexpr size_t kStrangersCallsMax = 2 * kStreamsPerConnection;
// An agent has one and up to two for heartbeats, and as many while it comes back. Beside them have
// room what strangers open, whose connections are bounded.
inline constexpr size_t kStreamsMax = 6 * size_t{kNodesMax} + kStrangersMax * kStrangersCallsMax;
inline constexpr size_t kUnaryCallsMax = 1024;  // calls for people that wait for the loop
inline constexpr size_t kWatchesMax = 256;      // streams for people

// Whose a call is.
struct Caller {
  std::string peer;      // gRPC's name
  std::string address;   // who shares it is bounded together; "" = it doesn't come over TCP
  bool trusted = false;  // has the token; where there is none: is on this machine
};
Caller CallerOf(absl::string_view peer, bool trusted);

// What a stranger hears whose address had its share of calls.
absl::Status TooManyCalls();

// A stream that the server must be able to end.
class OpenStream {
 public:
  enum class Kind { kAgent, kWatch };
  virtual ~OpenStream() = default;
  // Ends it at once with the status; only the first call counts. Threads: the loop's.
  virtual void FinishNow(const absl::Status& status) = 0;
};

// All calls that gRPC has given us and that are not answered: every one must be finished before the
// server can end, also one that arrives while the loop is ending it.
//
// Calls over TCP are a stranger's unless their caller is trusted. Of one connection strangers have
// kStrangersCallsMax at most. Of what is for people they have half, and one address a quarter.
// Threads: any.
class CallRegistry {
 public:
  // `on_flood`: called with the peer of a connection that asks for more, each time.
  // Params: stranger_every: how long until an address that has spent its allowance may call again.
  explicit CallRegistry(std::function<void(const std::string& peer)> on_flood = nullptr,
                        absl::Duration stranger_every = CallBudget::kEvery)
      : on_flood_(std::move(on_flood)), budget_(stranger_every) {}

  // Counts a stranger's call, before it is looked at. False: its address had its share. Who is
  // trusted, or doesn't come over TCP, may always.
  bool Charge(const Caller& caller);

  // Errors: UNAVAILABLE — too many at the moment, or the service is ending. The stream must finish
  // itself then.
  absl::Status Add(OpenStream::Kind kind, const std::shared_ptr<OpenStream>& stream,
                   const Caller& caller);
  // It is a member's; others than open ones are ignored.
  void Known(OpenStream* stream);
  // gRPC is done with it, whether it was refused or not.
  void Remove(OpenStream* stream);
  // The number by which the loop takes the call; finishes it itself, and returns 0, when it can't
  // be taken.
  uint64_t Add(grpc::ServerUnaryReactor* call, const Caller& caller);
  // The call to answer; nullptr when that was done already.
  grpc::ServerUnaryReactor* Take(uint64_t number);

  struct Open {
    std::vector<std::shared_ptr<OpenStream>> streams;
    std::vector<grpc::ServerUnaryReactor*> calls;
  };
  // Takes no more and gives out what is open.
  Open Close();
  // Waits until gRPC is done with all streams. False when they weren't in time.
  bool WaitUntilDone(absl::Duration limit);

 private:
  // The open ones of a kind.
  struct Tally {
    size_t most;
    size_t strangers_most;
    size_t address_most;
    size_t open = 0;
    size_t strangers = 0;                                // of these
    absl::flat_hash_map<std::string, size_t> addresses;  // of the strangers; none is 0
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
  std::set<OpenStream*> refused_;  // finished by themselves, but not done yet
  std::map<uint64_t, std::pair<grpc::ServerUnaryReactor*, Caller>> calls_;
  Tally agents_{.most = kStreamsMax, .strangers_most = kStreamsMax, .address_most = kStreamsMax};
  Tally watches_ = ForPeople(kWatchesMax);
  Tally unary_ = ForPeople(kUnaryCallsMax);
  absl::flat_hash_map<std::string, size_t> connections_;  // of strangers; none is 0
  CallBudget budget_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_
