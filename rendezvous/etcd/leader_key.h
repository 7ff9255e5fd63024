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
  // Who serves the job, and where; goes with the lease of the service. The revision at which it was
  // made names the leadership: it only grows.
  std::string leader;
  // The node whose service leads, or led last and ended without a word.
  std::string host;
  // The job's record (R10).
  std::string record;
  // Why there is no such job any more, for people (R10); goes with a lease of its own.
  std::string ended;
};

JobKeys KeysOf(const EtcdSettings& settings, const std::string& run_id);

// Asks for the names of so many keys under the prefix, at most.
etcdserverpb::RangeRequest AllKeys(const EtcdSettings& settings, int64_t limit);
// The run ids of the jobs that have a service, or a record, among these keys; each once, in order.
std::vector<std::string> JobsOf(const EtcdSettings& settings,
                                const etcdserverpb::RangeResponse& keys);

// What the key `leader` says.
struct Leader {
  int64_t revision = 0;      // of this leadership
  int64_t mod_revision = 0;  // of what it says
  int64_t lease = 0;
  std::string node_id;
  std::string address;  // "host:port"; "" = the service has not begun yet
};

// nullopt = nobody leads. Errors: DATA_LOSS — somebody else wrote there; says what.
absl::StatusOr<std::optional<Leader>> ReadLeader(const etcdserverpb::RangeResponse& reply);
std::string LeaderValue(const std::string& node_id, const std::string& address);

// A transaction that does something only if this leadership still lasts.
etcdserverpb::TxnRequest WhileLeading(const JobKeys& keys, int64_t revision);
void AddPut(const std::string& key, const std::string& value, int64_t lease,
            etcdserverpb::TxnRequest* txn);
void AddDelete(const std::string& key, etcdserverpb::TxnRequest* txn);
// `field` of `key` is this; 0 = there is no such key.
void AddCompare(const std::string& key, etcdserverpb::Compare::CompareTarget field, int64_t value,
                etcdserverpb::TxnRequest* txn);

// Ends the leadership at once, if it still lasts. `node_lives`: the next one need not fear for this
// node.
etcdserverpb::TxnRequest Resignation(const JobKeys& keys, int64_t revision, bool node_lives);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_
