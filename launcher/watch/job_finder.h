#ifndef DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_
#define DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "launcher/options/query_options.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// A rendezvous service that answers, and its jobs as far as they are asked for.
struct FoundService {
  rendezvous::ServiceAddress address;
  rendezvous::v1::GetStatusReply reply;
};

// The service at the endpoint, or those of the jobs in etcd, within `timeout` if none is named;
// without either those of this user's jobs on this machine, wherever they listen (their agents
// know), and that at localhost:29400. Each once, and at least one. Blocking. Errors: those of
// FetchStatus; NOT_FOUND: there is none; the text says where it looked.
absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options);

// What agents of this user on this machine say of themselves that hear no service, but for those
// of which `found` knows. Blocking.
std::vector<agent::v1::NodeState> FindCutOffNodes(const QueryOptions& options,
                                                  const std::vector<FoundService>& found);

// Where the service of the job is that is meant; without --rdzv_id its name is put into `options`,
// where that is known. Of several jobs on this machine the user is asked on a terminal. Blocking.
// Params: command: "stop", that asks. Errors, too: INVALID_ARGUMENT: there are several; the text
// has the commands to choose from. CANCELLED: the user said no to the only one.
enum class WhenOne { kTakesIt, kAsks };
absl::StatusOr<rendezvous::ServiceAddress> ChooseService(absl::string_view command,
                                                         QueryOptions* options, WhenOne when_one);

// Puts the name of the job that is meant into `options`, of those that etcd has. Requires: they
// name none. Errors: as ChooseService and rendezvous::ServiceLookup::Jobs.
absl::Status ChooseJobInEtcd(absl::string_view command, QueryOptions* options, WhenOne when_one);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_JOB_FINDER_H_
