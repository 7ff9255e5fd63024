#ifndef DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/progress_page.h"
#include "base/tls_files.h"
#include "rendezvous/client/reconnect_pauses.h"
#include "rendezvous/client/service_address.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/wire/grpc_settings.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::rendezvous {

struct ClientOptions {
  // gRPC target: "unix:/path", "host:port", "ipv6 in brackets:port".
  std::string target;
  ReconnectSettings reconnect;
  // Silence after which the client pings the service: KeepaliveOf().
  absl::Duration keepalive = kClientKeepaliveTime;
  // The least lease in force once the job runs: LeaseOf().
  absl::Duration lease;
  TlsFiles tls;  // none = without TLS; a unix socket never has it
  // Finds the target of each try, instead of `target`; null = `target` is fixed. Outlives the
  // client.
  ServiceLocator* locator = nullptr;
};

// The keepalive time for agents of a job: 2 s, or more if the pause between two probes of
// `nodes_min` nodes is longer (R4), because otherwise each pause would cost a ping.
absl::Duration KeepaliveOf(const JobSpec& job);
// The lease of the job with nodes_min nodes (R4).
absl::Duration LeaseOf(const JobSpec& job);

// An agent's connection to the rendezvous service: keeps one Attend stream open, reconnects for
// ever (the owner decides when to give up), and passes messages between the stream and the loop. It
// holds no protocol state: on each new stream it asks the owner for a Join, and the owner resends
// what wasn't processed (launcher/core). If the Welcome brought a key, it also keeps connections
// that only answer the service's probes, as many as the lease in force needs (heartbeat_path.h);
// none on a unix socket, which loses nothing.
//
// Threads: the loop's, for all methods and callbacks. May be destroyed at any time, also from its
// callbacks; that takes no time, and no callback follows.
class RendezvousClient {
 public:
  struct Callbacks {
    // The transport is up and a stream was opened: Send() a Join next.
    std::function<void()> on_stream_open;
    std::function<void(ServiceMessage)> on_message;
    // A probe came over a connection for heartbeats and was answered.
    std::function<void()> on_heartbeat;
    // The stream ended, or a try failed. OK: an orderly end after a verdict. UNAVAILABLE and the
    // like: the client will try again; the text is the bare reason ("10.0.0.1: 29400: Connection
    // refused"), and comes at most 1.8 s after the begin of the first try. Statuses of a refusal
    // (see the proto; UNIMPLEMENTED: something else is there) end the tries.
    std::function<void(absl::Status status, bool will_retry)> on_stream_closed;
  };

  // Begins to connect. Params: channel: replaces the target in tests.
  static std::unique_ptr<RendezvousClient> Start(EventLoop* loop, ClientOptions options,
                                                 Callbacks callbacks,
                                                 std::shared_ptr<grpc::Channel> channel = nullptr);
  virtual ~RendezvousClient() = default;

  // The target of the last try, as ClientOptions.target.
  virtual const std::string& target() const = 0;
  // Queues a message on the current stream. Returns false, and drops the message, if there is none.
  // At most 1024 wait; beyond that the stream is broken off and reconnected.
  virtual bool Send(const AgentMessage& message) = 0;
  // Queues a Renewal, and beside it figures for people, which no rule uses.
  virtual bool SendRenewal(const AgentMessage& message, const TrainingReport& training) = 0;
  // Half-closes the stream after the queued messages and stops reconnecting. on_stream_closed
  // follows within 2 s, even if the service doesn't answer; CANCELLED: there was no stream.
  virtual void Finish() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
