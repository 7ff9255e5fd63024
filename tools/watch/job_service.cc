#include "tools/watch/job_service.h"

#include <algorithm>

#include "base/status_macros.h"
#include "rendezvous/client/control_client.h"
#include "tools/watch/own_machine.h"

namespace ddprun::launcher {

absl::StatusOr<JobService> JobService::Find(absl::string_view command, QueryOptions* options,
                                            WhenOne when_one) {
  if (options->etcd.has_value()) {
    if (options->run_id.empty()) {
      DDPRUN_RETURN_IF_ERROR(ChooseJobInEtcd(command, options, when_one));
    }
    return FindInEtcd(*options, std::max(options->timeout, kTakeover));
  }
  DDPRUN_ASSIGN_OR_RETURN(rendezvous::ServiceAddress address,
                          ChooseService(command, options, when_one));
  return JobService(std::move(address));
}

absl::StatusOr<JobService> JobService::FindInEtcd(const QueryOptions& options,
                                                  absl::Duration patience) {
  JobService service("");
  DDPRUN_ASSIGN_OR_RETURN(service.lookup_,
                          rendezvous::ServiceLookup::Create(*options.etcd, options.run_id));
  DDPRUN_RETURN_IF_ERROR(service.LookUp(patience));
  return service;
}

bool JobService::MayMove(const absl::Status& lost) const {
  return lookup_ != nullptr && (absl::IsUnavailable(lost) || absl::IsDeadlineExceeded(lost));
}

absl::Status JobService::LookUp(absl::Duration patience) {
  DDPRUN_ASSIGN_OR_RETURN(const rendezvous::Leader leader, lookup_->Find(leadership_, patience));
  address_ = AddressOf(leader.address);
  leadership_ = leader.revision;
  lost_ = false;
  return absl::OkStatus();
}

absl::Status JobService::WatchEvents(
    rendezvous::v1::WatchEventsRequest request, const QueryOptions& options,
    const std::function<bool(const std::string& run_id, const rendezvous::v1::JobEvent&)>&
        on_event) {
  int64_t watched = leadership_;
  bool heard = false;
  bool sent_again = false;  // from the first one on, by the same service or one in its place
  uint64_t last_number = 0;
  uint64_t last_ms = 0;
  const auto watch = [&](const rendezvous::ServiceAddress& address) {
    if (std::exchange(watched, leadership_) != leadership_) request.set_after(0);
    return rendezvous::WatchEvents(
        address, request, options.timeout,
        [&](const std::string& run_id, const rendezvous::v1::JobEvent& event) {
          heard = true;
          request.set_after(event.number());
          // A service that was started again numbers its events from 1 again.
          const bool is_new = event.number() > last_number || event.wall_time_ms() > last_ms;
          if (sent_again && !is_new) return true;
          last_number = event.number();
          last_ms = event.wall_time_ms();
          return on_event(run_id, event);
        },
        options.tls);
  };
  while (true) {  // each service that was heard, and then lost, has a successor
    heard = false;
    absl::Status status = Ask(watch);
    if (status.ok() || !heard) return status;
    if (MayMove(status)) continue;
    const bool is_lost = lookup_ == nullptr && request.follow() && absl::IsUnavailable(status);
    if (!is_lost || !rendezvous::AwaitService(address_, kRestart, options.tls)) return status;
    sent_again = true;
    request.set_after(0);
  }
}

}  // namespace ddprun::launcher
