#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "ddprun/etcd/rpc.pb.h"
#include "rendezvous/etcd/core/etcd_settings.h"
#include "rendezvous/etcd/etcd_client.h"

namespace ddprun::rendezvous {

// A job's keys in etcd.
struct JobKeys {
  // The node that serves the job, and its address; expires with the lease of the service (2 s, or
  // what etcd grants). Its create revision numbers the leadership, and only grows.
  std::string leader;
  // The node of the current leader, or of the last one if it ended without resigning.
  std::string host;
  // The job's record (R10).
  std::string record;
  // Why the job has ended, for people (R10); expires with a lease of its own.
  std::string ended;
};

JobKeys KeysOf(const EtcdSettings& settings, const std::string& run_id);

// A request for the names of at most `limit` keys under the prefix.
etcdserverpb::RangeRequest AllKeys(const EtcdSettings& settings, int64_t limit);
// The run ids of the jobs that have a service, or a record, among these keys; each once, in order.
std::vector<std::string> JobsOf(const EtcdSettings& settings,
                                const etcdserverpb::RangeResponse& keys);

// The content of the key `leader`.
struct Leader {
  int64_t revision = 0;      // of this leadership
  int64_t mod_revision = 0;  // of the key's value
  int64_t lease = 0;
  std::string node_id;
  std::string address;  // "host:port"; "" = the service doesn't serve so far
};

// nullopt = there is no leader. Errors: DATA_LOSS: the value isn't one of ddprun's; the text has
// it.
absl::StatusOr<std::optional<Leader>> ReadLeader(const etcdserverpb::RangeResponse& reply);
std::string LeaderValue(const std::string& node_id, const std::string& address);

// A transaction that has an effect only if this leadership still lasts.
etcdserverpb::TxnRequest WhileLeading(const JobKeys& keys, int64_t revision);
void AddPut(const std::string& key, const std::string& value, int64_t lease,
            etcdserverpb::TxnRequest* txn);
void AddDelete(const std::string& key, etcdserverpb::TxnRequest* txn);
// Adds the condition that `field` of `key` is `value`; 0 = the key doesn't exist.
void AddCompare(const std::string& key, etcdserverpb::Compare::CompareTarget field, int64_t value,
                etcdserverpb::TxnRequest* txn);

// A transaction that ends the leadership at once, if it still lasts. Params: node_lives: the next
// leader need not suspect this node of being gone.
etcdserverpb::TxnRequest Resignation(const JobKeys& keys, int64_t revision, bool node_lives);

// Keeps the lease of a leadership alive, and ends the leadership when the lease may be over: the
// granted time after the last answered renewal was *sent*. Threads: the loop's.
class Leadership {
 public:
  // Requires: `client` outlives the Leadership. Params: asked: when the lease was asked for;
  // on_lost: called once; the lease may be over by then.
  Leadership(EventLoop* loop, EtcdClient* client, int64_t lease, Instant asked, absl::Duration ttl,
             std::function<void(absl::Status)> on_lost);
  ~Leadership();
  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

 private:
  void Renew();
  void OnAnswer(Instant sent, const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& reply);
  void Lose(absl::Status why);

  EventLoop* const loop_;
  EtcdClient* const client_;
  const int64_t lease_;
  absl::Duration ttl_;
  Instant until_;
  const std::function<void(absl::Status)> on_lost_;
  absl::Status last_error_;
  bool lost_ = false;
  Timer renewal_;
  Timer end_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
