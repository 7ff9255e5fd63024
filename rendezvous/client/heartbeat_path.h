#ifndef DDPRUN_RENDEZVOUS_CLIENT_HEARTBEAT_PATH_H_
#define DDPRUN_RENDEZVOUS_CLIENT_HEARTBEAT_PATH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/tls_files.h"
#include "rendezvous/client/attend_call.h"
#include "rendezvous/client/rendezvous_client.h"

namespace ddprun::rendezvous {

// Below this lease, one lost segment and its repetitions may take too much of it, so an agent has
// two connections for heartbeats beside its own; else one (R4).
inline constexpr absl::Duration kSecondPathBelow = absl::Seconds(3);
// From this lease on there is no such connection. Within 12.9 s the agent has given up a silent
// connection (KeepaliveOf(), at most 0.3 leases of a large job, and kClientKeepaliveTimeout) and
// tried two others (1.8 and 3.6 s).
inline constexpr absl::Duration kNoPathFrom = absl::Seconds(15);

// How many connections for heartbeats an agent has beside its own. Params: lease: in force, or
// that of nodes_min nodes if longer.
constexpr size_t HeartbeatPaths(absl::Duration lease) {
  if (lease < kSecondPathBelow) return 2;
  return lease < kNoPathFrom ? 1 : 0;
}

// Answers the service's probes over a connection that carries nothing else, and opens it again when
// it ends. The loop answers, so that an agent with a loop that hangs is silent.
//
// Threads: the loop's. May be destroyed at any time, also from `on_probe`.
class HeartbeatPath final : public AttendCall::Owner {
 public:
  // Params: header: of the agent's stream that got `key`; on_probe: called for each probe.
  HeartbeatPath(EventLoop* loop, ClientOptions options, AgentMessage header, uint64_t key,
                std::function<void()> on_probe);
  ~HeartbeatPath() override;
  HeartbeatPath(const HeartbeatPath&) = delete;
  HeartbeatPath& operator=(const HeartbeatPath&) = delete;

  void OnCallOpen(AttendCall* call) override;
  void OnCallMessage(AttendCall* call, absl::StatusOr<ServiceMessage> message) override;
  void OnCallDone(AttendCall* call, const grpc::Status& status) override;

 private:
  void Try();

  EventLoop* const loop_;
  const ClientOptions options_;
  AgentMessage message_;  // its body is replaced for each message
  const uint64_t key_;
  const std::function<void()> on_probe_;
  const std::shared_ptr<LoopInbox> inbox_;
  std::shared_ptr<AttendCall> call_;  // null between two tries
  absl::Duration pause_;
  Timer retry_timer_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_HEARTBEAT_PATH_H_
