#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_JOURNAL_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/leadership.h"
#include "rendezvous/journal/journal.h"

namespace ddprun::rendezvous {

// A job's record as the value of its key in etcd, and back. Params: boot: of this machine, "" =
// unknown; now: its clock.
std::string StoredRecordOf(const JobRecord& record, const std::string& boot, Instant now);

// Errors: those of reading a record; DATA_LOSS: it is none. Ensures: `elapsed` is within 0 and now.
absl::StatusOr<KeptJob> ReadStoredRecord(const std::string& value, const std::string& run_id,
                                         const std::string& boot, Instant now);

// Keeps one job's record in etcd. A write succeeds only while this leadership lasts and no other
// service has written the record. Otherwise the service is fenced: it gets no answer any more, and
// must end. If the cluster doesn't answer, the journal waits: the leadership ends before the
// patience does. Any other error is permanent, as with a file. Threads: the loop's.
class EtcdJournal final : public Journal {
 public:
  // Requires: `client` outlives the journal. Params: on_fenced: called once.
  EtcdJournal(EventLoop* loop, EtcdClient* client, std::string run_id, JobKeys keys,
              int64_t leadership, std::function<void(absl::Status)> on_fenced);
  // Calls that are not answered by then never are.
  ~EtcdJournal() override;

  // Reads the record, if there is one, and records that this service has read it. Requires: no
  // Write before. Errors: DATA_LOSS: the record can't be read; the text says why, and what to do.
  // ABORTED: fenced. Else as EtcdClient.
  void Load(std::function<void(absl::StatusOr<std::vector<KeptJob>>)> done);
  // Calls `done` as soon as no call is under way.
  void NotifyWhenIdle(std::function<void()> done);

  bool keeps() const override { return true; }
  void Write(const std::string& run_id, JobRecord record,
             std::function<void(absl::Status)> done) override;
  void Forget(const std::string& run_id) override;
  // Errors: as EtcdClient.
  void Retract(const std::string& run_id, std::function<void(absl::Status)> done) override;
  std::string where() const override { return client_->Name(); }

 private:
  void OnRead(const absl::StatusOr<etcdserverpb::RangeResponse>& reply,
              std::function<void(absl::StatusOr<std::vector<KeptJob>>)> done);
  void Put(const JobRecord& record, std::function<void(absl::Status)> done);
  absl::Status OnPut(const std::string& value,
                     const absl::StatusOr<etcdserverpb::TxnResponse>& reply);
  void Fence();
  void Settle();

  EventLoop* const loop_;
  EtcdClient* const client_;
  const std::string run_id_;
  const JobKeys keys_;
  const int64_t leadership_;
  const std::function<void(absl::Status)> on_fenced_;
  const std::string boot_;
  int64_t mod_revision_ = 0;  // of the record that this service knows; 0 = there is none
  bool fenced_ = false;
  absl::Status broken_;  // the first error
  uint32_t under_way_ = 0;
  std::function<void()> on_idle_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_JOURNAL_H_
