#ifndef DDPRUN_RENDEZVOUS_ETCD_SERVICE_LOOKUP_H_
#define DDPRUN_RENDEZVOUS_ETCD_SERVICE_LOOKUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "rendezvous/etcd/core/etcd_settings.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/leadership.h"

namespace ddprun::rendezvous {

// Finds a job's service in etcd for a command; takes no part in elections. Blocking: has a loop of
// its own. Threads: the one that made it.
class ServiceLookup {
 public:
  // Errors: as EtcdClient::Create.
  static absl::StatusOr<std::unique_ptr<ServiceLookup>> Create(const EtcdSettings& settings,
                                                               std::string run_id);

  // The run ids of the jobs under the prefix, in order. Errors: NOT_FOUND: there is none;
  // RESOURCE_EXHAUSTED: there are thousands; else as Create and EtcdClient.
  static absl::StatusOr<std::vector<std::string>> Jobs(const EtcdSettings& settings,
                                                       absl::Duration patience);

  // The leader that serves the job. Waits for one if the job exists and has no leader. Params:
  // former: the revision of a leader that didn't answer, so the call waits a moment for another
  // one; 0 = none. Errors: NOT_FOUND: etcd has no such job. UNAVAILABLE: no leader within
  // `patience`, or etcd doesn't answer; the text says which.
  absl::StatusOr<Leader> Find(int64_t former, absl::Duration patience);

 private:
  ServiceLookup(std::unique_ptr<EventLoop> loop, std::unique_ptr<EtcdClient> client, JobKeys keys,
                std::string run_id);
  // Params: request: a key, or a RangeRequest.
  template <typename Request>
  absl::StatusOr<etcdserverpb::RangeResponse> Read(Request request, absl::Duration patience);
  void AwaitChange(int64_t revision, absl::Duration patience);
  void RunUntilDone();

  const std::unique_ptr<EventLoop> loop_;
  const std::unique_ptr<EtcdClient> client_;  // destroyed before its loop
  const JobKeys keys_;
  const std::string run_id_;
  bool done_ = false;  // ends RunUntilDone()
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_SERVICE_LOOKUP_H_
