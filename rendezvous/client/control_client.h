#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::rendezvous {

// One call to a rendezvous service each, for `ddprun status`, `stop`, `drain` and `events`.
// Blocking: not for a loop. Params: timeout: covers connecting and the answer; tls: as for
// MakeChannel. Errors: UNAVAILABLE, DEADLINE_EXCEEDED: the service wasn't reached; the text says
// why. UNIMPLEMENTED: something else is at that address. NOT_FOUND: the service has no such job.
// Threads: any, but the first call of a process alone (InitializeGrpc).

// The jobs of the service. Params: run_id: "" = all; token: "" = none. Errors, too:
// UNAUTHENTICATED: not the job's token, and the service is on another machine.
absl::StatusOr<v1::GetStatusReply> FetchStatus(const ServiceAddress& service,
                                               const std::string& run_id, absl::Duration timeout,
                                               const std::string& token = "",
                                               const TlsFiles& tls = {});

// Ends a job. Errors, too: UNAUTHENTICATED: not the job's token. PERMISSION_DENIED: there is no
// token, and the service is on another machine.
absl::Status RequestStop(const ServiceAddress& service, const std::string& run_id,
                         const std::string& token, const std::string& reason,
                         absl::Duration timeout, const TlsFiles& tls = {});

// Asks a node to leave. Errors, too: those of RequestStop; FAILED_PRECONDITION: the node hosts the
// service; INVALID_ARGUMENT: several nodes have the name.
absl::StatusOr<v1::DrainNodeReply> RequestDrain(const ServiceAddress& service,
                                                const v1::DrainNodeRequest& request,
                                                absl::Duration timeout, const TlsFiles& tls = {});

// Waits until something listens at the address, as a service does that was started again. Returns
// false if nothing does within `patience`. Blocking.
bool AwaitService(const ServiceAddress& service, absl::Duration patience, const TlsFiles& tls);

// Calls `on_event` with each event of a job until it returns false, the events end (with `follow`:
// when the job has ended) or the connection ends. `timeout` is for calls without `follow`.
absl::Status WatchEvents(
    const ServiceAddress& service, const v1::WatchEventsRequest& request, absl::Duration timeout,
    const std::function<bool(const std::string& run_id, const v1::JobEvent&)>& on_event,
    const TlsFiles& tls = {});

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_
