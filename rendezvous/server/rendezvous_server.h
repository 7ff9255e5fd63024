#ifndef DDPRUN_RENDEZVOUS_SERVER_RENDEZVOUS_SERVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_RENDEZVOUS_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/tls_files.h"
#include "rendezvous/core/types.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/server/core/call_budget.h"
#include "rendezvous/server/core/doorkeeper.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddprun::rendezvous {

struct ServerOptions {
  // "0.0.0.0:29400", "[::]:0", or "unix:/path". Port 0 = any free one.
  std::string listen;
  // Where the job's owner reaches it besides, without TLS and token: "unix:/path"; "" = nowhere.
  std::string socket;
  // Secret that Join and control calls must carry; "" = none (control calls from this machine
  // only).
  std::string token;
  // Who comes over TCP needs a certificate of this CA, too; none = without TLS.
  TlsFiles tls;
  // The one job this service is for; "" = any number of jobs, told apart by run id. A foreign job
  // at a service of one job is refused with ALREADY_EXISTS that names the holder.
  std::string only_run_id;
  // Where the service keeps what must outlive it (R10); null = nowhere.
  std::shared_ptr<Journal> journal;
  // Jobs that it holds from another service, which go on. Of other jobs than only_run_id none does.
  std::vector<KeptJob> kept;
  // Of jobs that begin here; 0 = a random one.
  Term first_term;
  // How many strangers' connections are kept over TCP; none = as the limit of descriptors allows.
  std::optional<DoorBounds> door;
  // How long until an address whose calls without the token spent its allowance may make another.
  absl::Duration stranger_call_every = CallBudget::kEvery;
  // As FrontDoor::Options.on_store; null = this service's port is no MASTER_PORT.
  std::function<void(Fd connection)> on_store;
  // Called on the loop when the only job has ended and all its streams are closed (or 2 s later).
  std::function<void(const std::string& how)> on_only_job_ended;
  // Called on the loop before anybody hears what the journal's record doesn't know and can't be
  // told: no other service may be started from it. `why`: for people.
  std::function<void(const std::string& why)> on_record_stale;
};

// gRPC around the core: callbacks validate, convert and post to the loop, which owns all state; the
// answers leave by post. One instance serves many jobs.
// Threads: the loop's, all methods.
class RendezvousServer {
 public:
  // Errors: those of StartGrpcListener: UNAVAILABLE — the address is in use or not ours; the text
  // names it and the errno.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(EventLoop* loop, EventLog* events,
                                                                 ServerOptions options);
  virtual ~RendezvousServer() = default;

  // Port in use; 0 for unix sockets.
  virtual int port() const = 0;
  virtual Term term() const = 0;
  // How often input was refused, by kind ("malformed_message", "slow_reader", …; R9).
  virtual const std::map<std::string, uint64_t>& refusals() const = 0;
  // Calls `on_idle` once, from the loop, as soon as no agent's stream is open.
  virtual void NotifyWhenIdle(std::function<void()> on_idle) = 0;
  // A channel without a socket; for tests.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;
  // Ends all streams with UNAVAILABLE and stops serving; returns when no callback runs any more.
  virtual void Shutdown() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_RENDEZVOUS_SERVER_H_
