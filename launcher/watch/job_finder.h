#ifndef DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_
#define DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "launcher/options/query_options.h"

namespace ddprun::launcher {

// A rendezvous service that answers, and its jobs as far as they are asked for.
struct FoundService {
  std::string target;  // "host:port" or "unix:/path"
  rendezvous::v1::GetStatusReply reply;
};

// The service at the endpoint; without one those of this user's jobs on this machine, which need no
// address (decision 3), those that its agents found in etcd, and that at localhost:29400. At least
// one. Blocking.
// Errors: those of FetchStatus; NOT_FOUND: there is none; the text says where it looked.
absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options);

// What agents of this user on this machine say of themselves that hear no service, but for those
// of which `found` knows. Blocking.
std::vector<agent::v1::NodeState> FindCutOffNodes(const QueryOptions& options,
                                                  const std::vector<FoundService>& found);

// Where the only one is. Errors, too: INVALID_ARGUMENT: there are several; the text names them.
absl::StatusOr<std::string> FindTarget(const QueryOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_
