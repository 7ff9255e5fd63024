#ifndef DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_
#define DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_

#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// An agent has one and up to two for heartbeats, and as many while it comes back.
inline constexpr size_t kStreamsMax = 6 * size_t{kNodesMax};
inline constexpr size_t kUnaryCallsMax = 1024;  // calls for people that wait for the loop
inline constexpr size_t kWatchesMax = 256;      // streams for people

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
// Threads: any.
class CallRegistry {
 public:
  // Errors: UNAVAILABLE — too many at the moment, or the service is ending. The stream must finish
  // itself then.
  absl::Status Add(OpenStream::Kind kind, const std::shared_ptr<OpenStream>& stream);
  // gRPC is done with it, whether it was refused or not.
  void Remove(OpenStream* stream);
  // The number by which the loop takes the call; finishes it itself, and returns 0, when it can't
  // be taken.
  uint64_t Add(grpc::ServerUnaryReactor* call);
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
  absl::Status Admit(size_t open, size_t most) const;

  std::mutex mutex_;
  std::condition_variable done_;
  bool closed_ = false;
  uint64_t last_number_ = 0;
  struct Entry {
    OpenStream::Kind kind;
    std::shared_ptr<OpenStream> stream;
  };
  std::map<OpenStream*, Entry> streams_;
  size_t watches_ = 0;             // of these
  std::set<OpenStream*> refused_;  // finished by themselves, but not done yet
  std::map<uint64_t, grpc::ServerUnaryReactor*> calls_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CALL_REGISTRY_H_
