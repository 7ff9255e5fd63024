#ifndef DDPRUN_TOOLS_WATCH_JOB_SERVICE_H_
#define DDPRUN_TOOLS_WATCH_JOB_SERVICE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "launcher/options/query_options.h"
#include "rendezvous/client/service_address.h"
#include "rendezvous/etcd/service_lookup.h"
#include "tools/watch/job_finder.h"

namespace ddprun::launcher {

// The service that a command calls. If the job's record is in etcd, another node may take over the
// job meanwhile; the command then goes on with the new service. Blocking.
class JobService {
 public:
  // How long a command waits for another node to take over the job: the lost service's lease in
  // etcd, an election, and the election of a new leader of etcd itself.
  static constexpr absl::Duration kTakeover = absl::Seconds(30);
  static constexpr absl::Duration kMoment = absl::Seconds(1);
  // How long a follower waits for the agent to start a lost service again.
  static constexpr absl::Duration kRestart = absl::Seconds(10);

  // Finds the service of the job in `options`. Without --rdzv_id the job's name, if known, is put
  // into `options`. If there are several jobs on this machine, or in etcd, the user is asked on a
  // terminal. Params: command: the command that asks, "stop". Errors: those of FindServices
  // (job_finder.h) and rendezvous::ServiceLookup; INVALID_ARGUMENT — several jobs; the text has the
  // commands to choose from.
  static absl::StatusOr<JobService> Find(absl::string_view command, QueryOptions* options,
                                         WhenOne when_one = WhenOne::kTakesIt);
  // Finds the service of the job that `options` name in etcd; waits up to `patience` for a leader.
  static absl::StatusOr<JobService> FindInEtcd(const QueryOptions& options,
                                               absl::Duration patience);

  const rendezvous::ServiceAddress& address() const { return address_; }

  // Whether another service may answer after this error: the service of a job in etcd wasn't
  // reached.
  bool MayMove(const absl::Status& lost) const;

  // Runs `call`, which calls the service at an address and returns a Status or StatusOr. If that
  // service is lost, waits for the next one until `patience` is over (a moment longer after a call
  // that took so long), and runs `call` again.
  template <typename Call>
  auto Ask(const Call& call, absl::Duration patience = kTakeover) {
    using Result = decltype(call(address_));
    const Instant until = MonotonicNow() + patience;
    while (true) {
      const Instant now = MonotonicNow();
      if (lost_) {
        if (absl::Status found = LookUp(std::max(until - now, kMoment)); !found.ok()) {
          return Result(found);
        }
      }
      Result result = call(address_);
      lost_ = MayMove(StatusOf(result));
      if (!lost_ || now >= until) return result;
    }
  }

  // As rendezvous::WatchEvents, but goes on with a service that takes over the job, or is started
  // again. It numbers its events from 1 again, and all of them are new.
  absl::Status WatchEvents(rendezvous::v1::WatchEventsRequest request, const QueryOptions& options,
                           const std::function<bool(const std::string& run_id,
                                                    const rendezvous::v1::JobEvent&)>& on_event);

 private:
  explicit JobService(rendezvous::ServiceAddress address) : address_(std::move(address)) {}
  static const absl::Status& StatusOf(const absl::Status& status) { return status; }
  template <typename Value>
  static const absl::Status& StatusOf(const absl::StatusOr<Value>& value) {
    return value.status();
  }
  absl::Status LookUp(absl::Duration patience);

  rendezvous::ServiceAddress address_;
  std::unique_ptr<rendezvous::ServiceLookup> lookup_;  // null: the job isn't in etcd
  int64_t leadership_ = 0;                             // number of the leadership of address_
  bool lost_ = false;                                  // the last call didn't reach address_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_JOB_SERVICE_H_
