#ifndef DDPRUN_TOOLS_WATCH_JOB_FINDER_H_
#define DDPRUN_TOOLS_WATCH_JOB_FINDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "launcher/options/query_options.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// A rendezvous service that answers, and the requested ones of its jobs.
struct FoundService {
  rendezvous::ServiceAddress address;
  rendezvous::v1::GetStatusReply reply;
};

// The service at the endpoint, or the services of the jobs in etcd (those that answer within
// `timeout`, if no job is named). Without either, the services of this user's jobs on this machine
// at any address, which their agents know, and the one at localhost:29400. Each service once, at
// least one. Blocking. Errors: those of FetchStatus; NOT_FOUND — there is none; the text says where
// was searched.
absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options);

// The states of this user's agents on this machine that have no contact to a service, without those
// that `found` includes. Blocking.
std::vector<agent::v1::NodeState> FindCutOffNodes(const QueryOptions& options,
                                                  const std::vector<FoundService>& found);

// The address of the job's service. Without --rdzv_id the job's name, if known, is put into
// `options`. If this machine has several jobs, the user is asked on a terminal. Blocking. Params:
// command: the command that asks, "stop". Other errors: INVALID_ARGUMENT — several jobs; the text
// has the commands to choose from. CANCELLED — the user declined the only one.
enum class WhenOne { kTakesIt, kAsks };
absl::StatusOr<rendezvous::ServiceAddress> ChooseService(absl::string_view command,
                                                         QueryOptions* options, WhenOne when_one);

// Chooses one of the jobs in etcd and puts its name into `options`. Requires: `options` name no
// job. Errors: as ChooseService and rendezvous::ServiceLookup::Jobs.
absl::Status ChooseJobInEtcd(absl::string_view command, QueryOptions* options, WhenOne when_one);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_JOB_FINDER_H_
