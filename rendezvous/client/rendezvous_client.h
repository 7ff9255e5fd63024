#ifndef DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/tls_files.h"
#include "base/training_report.h"
#include "rendezvous/client/reconnect_pauses.h"
#include "rendezvous/client/service_locator.h"
#include "rendezvous/core/message.h"
#include "rendezvous/wire/grpc_settings.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::rendezvous {

struct ClientOptions {
  // gRPC target: "unix:/path", "host:port", "ipv6 in brackets:port".
  std::string target;
  ReconnectSettings reconnect;
  // After so much silence the service is asked for a sign of life: KeepaliveOf().
  absl::Duration keepalive = kClientKeepaliveTime;
  // What the lease in force is at least once the job runs: LeaseOf().
  absl::Duration lease;
  TlsFiles tls;  // none = without TLS; a unix socket never has it
  // Says the target of each try, in place of `target`; null = that one stays. Outlives the client.
  ServiceLocator* locator = nullptr;
};

// For agents of a job: 2 s, and more than the pause between two probes where so many nodes take
// part at least that it is longer (R4), or each pause would cost a ping.
absl::Duration KeepaliveOf(const JobSpec& job);
// The lease of the job with as few nodes as it may have (R4).
absl::Duration LeaseOf(const JobSpec& job);

// An agent's connection to the rendezvous service: keeps one Attend stream open, reconnecting for
// ever (the owner decides when to give up), and moves messages between it and the loop. It holds no
// protocol state: on each new stream the owner is asked for a Join, and resends what was not
// processed (launcher/core does that). Beside a stream whose Welcome brought a key it has as many
// connections of their own that answer the service's probes as the lease in force asks for
// (heartbeat_path.h); none on a unix socket, which loses nothing.
//
// Threads: the loop's, all methods and all callbacks. It may be destroyed at any time, also from
// its callbacks; that takes no time, and nothing is called afterwards.
class RendezvousClient {
 public:
  struct Callbacks {
    // The transport is up and a stream was opened: Send() a Join next.
    std::function<void()> on_stream_open;
    std::function<void(ServiceMessage)> on_message;
    // A probe came over a connection for heartbeats, and was answered.
    std::function<void()> on_heartbeat;
    // The stream ended, or a try did not come so far: OK = orderly after a verdict. UNAVAILABLE and
    // the like mean that the client is about to try again, and the text is the bare reason
    // ("10.0.0.1: 29400: Connection refused"), at most 1.8 s after the begin of the first try.
    // Statuses of a refusal (see the proto; UNIMPLEMENTED: something else is there) end the tries.
    std::function<void(absl::Status status, bool will_retry)> on_stream_closed;
  };

  // Begins to connect. In tests `channel` replaces the target.
  static std::unique_ptr<RendezvousClient> Start(EventLoop* loop, ClientOptions options,
                                                 Callbacks callbacks,
                                                 std::shared_ptr<grpc::Channel> channel = nullptr);
  virtual ~RendezvousClient() = default;

  // Where the last try went, as ClientOptions.target.
  virtual const std::string& target() const = 0;
  // Queues a message on the current stream; dropped (returns false) when there is none. At most
  // 1024 wait; beyond that the stream is broken off and reconnected.
  virtual bool Send(const AgentMessage& message) = 0;
  // The same of a Renewal, with what no rule looks at: it goes beside the message, for people.
  virtual bool SendRenewal(const AgentMessage& message, const TrainingReport& training) = 0;
  // Half-closes the stream after what is queued and stops reconnecting; on_stream_closed follows,
  // within 2 s even if the service doesn't answer. CANCELLED: there was no stream.
  virtual void Finish() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_RENDEZVOUS_CLIENT_H_
