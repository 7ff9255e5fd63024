#ifndef DDPRUN_LAUNCHER_STORES_PEER_STORE_H_
#define DDPRUN_LAUNCHER_STORES_PEER_STORE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "base/tls_files.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/stores/core/key_value_store.h"

namespace ddprun::launcher {

// One message of agent/v1: the largest value, and room for its key or for many keys to wait for.
inline constexpr size_t kAgentMessageBytesMax = StoreBounds{}.value_bytes + (8U << 20);

// Conversion between proto agent/v1 and the store's plain types. The store checks keys, sizes and
// numbers. Threads: any.
// Errors: INVALID_ARGUMENT — no operation, or one that this release doesn't know.
absl::StatusOr<StoreOperation> FromProto(const agent::v1::StoreRequest& request);
agent::v1::StoreReply ToProto(const StoreResult& result);

// The operation's name for messages: "set"; "unknown" when FromProto() refuses it.
std::string OperationName(const agent::v1::StoreRequest& request);
// How long the operation may wait for keys; zero for operations that never wait.
absl::Duration TimeoutOf(const agent::v1::StoreRequest& request);

}  // namespace ddprun::launcher

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::launcher {

// The gRPC metadata key with the job's secret in calls between agents. The secret isn't in the
// request, because requests may be large and are forwarded unchanged.
inline constexpr char kTokenMetadata[] = "ddprun-token-bin";

// The store of a generation whose rank 0 is on another node: forwards calls to the agent there.
//
// The connection is made with the first call, so jobs whose workers never use the store have none,
// and kept for later generations. A call that can't be delivered fails at once: that agent listened
// before the generation began, so it is gone, and the generation with it.
//
// Threads: the loop's, the callback too.
class PeerStore {
 public:
  // The forwarded call `id` has ended; if the status is OK, `reply` may be moved from. Errors: the
  // other agent's; UNAVAILABLE if that can't be reached or stays silent.
  using OnReply =
      std::function<void(uint64_t id, const absl::Status& status, agent::v1::StoreReply* reply)>;

  struct Options {
    std::string address;  // "host:port"
    // How long after the operation's own timeout the other agent counts as silent.
    absl::Duration margin;
    TlsFiles tls;       // none = without TLS
    std::string token;  // the job's secret; "" = none
  };
  PeerStore(EventLoop* loop, Options options, OnReply on_reply);
  // Ends all calls without an answer. Returns when no callback of gRPC's runs.
  ~PeerStore();
  PeerStore(const PeerStore&) = delete;
  PeerStore& operator=(const PeerStore&) = delete;

  const std::string& address() const { return options_.address; }
  // Whether the last attempt to connect failed, so that a new one waits for gRPC's back-off.
  bool Failing() const;

  // Requires: `id` is not under way; `request` stays until the end of the call.
  void Forward(uint64_t id, const agent::v1::StoreRequest& request);
  // Ends a call without an answer; unknown ids are ignored.
  void Cancel(uint64_t id);

 private:
  struct Call;

  void OnDone(uint64_t id, const absl::Status& status);
  absl::Status Judge(const Call& call, const absl::Status& status) const;

  EventLoop* const loop_;
  const Options options_;
  const OnReply on_reply_;
  const std::shared_ptr<LoopInbox> inbox_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<agent::v1::Agent::Stub> stub_;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;

  std::mutex mutex_;
  std::condition_variable idle_;
  size_t running_ = 0;  // callbacks that gRPC still owes; guarded by mutex_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_PEER_STORE_H_
