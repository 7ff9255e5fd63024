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
#include "rendezvous/core/identifiers.h"
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
  // A second address for the job's owner, without TLS and token: "unix:/path"; "" = none.
  std::string socket;
  // Secret of Join and control calls; "" = none (control calls from this machine only).
  std::string token;
  // Over TCP, peers need a certificate of this CA; empty = without TLS.
  TlsFiles tls;
  // The one job of this service; "" = any number of jobs, by run id. A service of one job refuses
  // other jobs with ALREADY_EXISTS and a text that names its job.
  std::string only_run_id;
  // Storage for records (R10); null = none.
  std::shared_ptr<Journal> journal;
  // Jobs of a former service, which are resumed. With only_run_id, only that job is.
  std::vector<KeptJob> kept;
  // The term of jobs that begin here; 0 = a random one.
  Term first_term;
  // Bounds of unauthenticated connections over TCP; nullopt = by the limit of descriptors.
  std::optional<DoorBounds> door;
  // How long until an address that has spent its allowance of calls without the token may make
  // another.
  absl::Duration stranger_call_every = CallBudget::kEvery;
  // As FrontDoor::Options.on_store; null = this service's port is no MASTER_PORT.
  std::function<void(Fd connection)> on_store;
  // Called on the loop when the only job has ended and all its streams are closed (or 2 s later).
  std::function<void(const std::string& how)> on_only_job_ended;
  // Called on the loop before a message is sent that the journal's record doesn't cover and can't
  // be made to cover: no other service may resume from the record. Params: why: for people.
  std::function<void(const std::string& why)> on_record_stale;
};

// gRPC around the core: callbacks validate, convert and post to the loop, which owns all state and
// posts the answers. One instance serves many jobs. Threads: the loop's, for all methods.
class RendezvousServer {
 public:
  // Errors: those of StartGrpcListener: UNAVAILABLE: the address is in use or not this machine's;
  // the text names it and the errno.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(EventLoop* loop, EventLog* events,
                                                                 ServerOptions options);
  virtual ~RendezvousServer() = default;

  // The port; 0 for unix sockets.
  virtual int port() const = 0;
  virtual Term term() const = 0;
  // How often input was refused, by kind ("malformed_message", "slow_reader", …; R9).
  virtual const std::map<std::string, uint64_t>& refusals() const = 0;
  // Calls `on_idle` once, from the loop, as soon as no agent's stream is open.
  virtual void NotifyWhenIdle(std::function<void()> on_idle) = 0;
  // A channel without a socket; for tests.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;
  // Ends all streams with UNAVAILABLE and stops serving. No callback runs after it returns.
  virtual void Shutdown() = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_RENDEZVOUS_SERVER_H_
