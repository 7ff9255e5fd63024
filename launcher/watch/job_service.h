#ifndef DDPRUN_LAUNCHER_WATCH_JOB_SERVICE_H_
#define DDPRUN_LAUNCHER_WATCH_JOB_SERVICE_H_

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
#include "launcher/watch/job_finder.h"
#include "rendezvous/client/service_address.h"
#include "rendezvous/etcd/service_lookup.h"

namespace ddprun::launcher {

// The service that a command asks. Where the job's record is in etcd another node may take the job
// over meanwhile; then the command goes on with the new service. Blocking.
class JobService {
 public:
  // How long a command waits for another node to take the job over: etcd's lease of the lost
  // service, an election, and that of a new leader of etcd itself.
  static constexpr absl::Duration kTakeover = absl::Seconds(30);
  static constexpr absl::Duration kMoment = absl::Seconds(1);

  // Of the job that is meant: without --rdzv_id its name is put into `options`, where that is
  // known. Of several jobs on this machine, or in etcd, the user is asked on a terminal. Params:
  // command: "stop", that asks. Errors: those of FindServices (job_finder.h) and
  // rendezvous::ServiceLookup; INVALID_ARGUMENT: there are several; the text has the commands to
  // choose from.
  static absl::StatusOr<JobService> Find(absl::string_view command, QueryOptions* options,
                                         WhenOne when_one = WhenOne::kTakesIt);
  // Of the job that `options` name in etcd; a leader is waited for until `patience` is over.
  static absl::StatusOr<JobService> FindInEtcd(const QueryOptions& options,
                                               absl::Duration patience);

  const rendezvous::ServiceAddress& address() const { return address_; }

  // Whether a call that ended so may find another service: of a job in etcd that was not reached.
  bool MayMove(const absl::Status& lost) const;

  // What `call` returns, a Status or StatusOr of a call to the service at an address. Where that
  // service is lost, the next one is asked; it is waited for until `patience` is over, and a moment
  // longer after a call that took so long.
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

  // As rendezvous::WatchEvents. A service that has taken the job over numbers its events anew, from
  // 1, and all of them are new.
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
  int64_t leadership_ = 0;                             // that address_ is of
  bool lost_ = false;                                  // the last call didn't reach address_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_JOB_SERVICE_H_
