#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddprun/etcd/rpc.pb.h"
#include "rendezvous/etcd/core/etcd_settings.h"

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_
