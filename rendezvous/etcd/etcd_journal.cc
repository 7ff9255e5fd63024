#include "rendezvous/etcd/etcd_journal.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/journal/journal_file.h"
#include "rendezvous/journal/record_proto.h"

namespace ddprun::rendezvous {

std::string StoredRecordOf(const JobRecord& record, const std::string& boot, Instant now) {
  v1::StoredRecord stored;
  stored.set_boot_id(boot);
  stored.set_made_ns(now.nanoseconds());
  *stored.mutable_record() = ToProto(record);
  return stored.SerializeAsString();
}

absl::StatusOr<KeptJob> ReadStoredRecord(const std::string& value, const std::string& run_id,
                                         const std::string& boot, Instant now) {
  v1::StoredRecord stored;
  if (!stored.ParseFromString(value)) return absl::DataLossError("no record of ddprun's");
  absl::StatusOr<JobRecord> record = FromProto(stored.record());
  if (!record.ok()) return record.status();
  const bool same_boot = !boot.empty() && stored.boot_id() == boot;
  // The time comes from etcd, where other programs may have written any value.
  const bool is_past = stored.made_ns() >= 0 && stored.made_ns() <= now.nanoseconds();
  return KeptJob{.run_id = run_id,
                 .record = *std::move(record),
                 .elapsed = same_boot && is_past ? now - Instant::FromNanoseconds(stored.made_ns())
                                                 : absl::ZeroDuration()};
}

namespace {

namespace pb = etcdserverpb;

// Longer than a leadership lasts without an answer from etcd.
constexpr absl::Duration kPatience = absl::Hours(1);
constexpr absl::Duration kLoadPatience = absl::Seconds(5);

}  // namespace

EtcdJournal::EtcdJournal(EventLoop* loop, EtcdClient* client, std::string run_id, JobKeys keys,
                         int64_t leadership, std::function<void(absl::Status)> on_fenced)
    : loop_(loop),
      client_(client),
      run_id_(std::move(run_id)),
      keys_(std::move(keys)),
      leadership_(leadership),
      on_fenced_(std::move(on_fenced)),
      boot_(BootId()) {}

EtcdJournal::~EtcdJournal() { *alive_ = false; }

void EtcdJournal::Load(std::function<void(absl::StatusOr<std::vector<KeptJob>>)> done) {
  client_->Range(keys_.record, kLoadPatience,
                 [this, alive = alive_,
                  done = std::move(done)](const absl::StatusOr<pb::RangeResponse>& reply) mutable {
                   if (*alive) OnRead(reply, std::move(done));
                 });
}

void EtcdJournal::OnRead(const absl::StatusOr<pb::RangeResponse>& reply,
                         std::function<void(absl::StatusOr<std::vector<KeptJob>>)> done) {
  if (!reply.ok()) return done(reply.status());
  if (reply->kvs().empty()) return done(std::vector<KeptJob>());
  absl::StatusOr<KeptJob> kept =
      ReadStoredRecord(reply->kvs(0).value(), run_id_, boot_, loop_->Now());
  if (!kept.ok()) {
    return done(absl::DataLossError(
        absl::StrCat("the record of the job in etcd, key ", Quoted(keys_.record), ": ",
                     kept.status().message(), "; delete the key to start the job anew")));
  }
  mod_revision_ = reply->kvs(0).mod_revision();
  ++kept->record.life;
  Put(kept->record, [job = *kept, done = std::move(done)](const absl::Status& status) {
    if (!status.ok()) return done(status);
    done(std::vector<KeptJob>{job});
  });
}

void EtcdJournal::Write(const std::string& /*run_id*/, JobRecord record,
                        std::function<void(absl::Status)> done) {
  if (fenced_) return;
  if (!broken_.ok()) return done(broken_);
  Put(record, std::move(done));
}

void EtcdJournal::Put(const JobRecord& record, std::function<void(absl::Status)> done) {
  std::string value = StoredRecordOf(record, boot_, loop_->Now());
  pb::TxnRequest txn = WhileLeading(keys_, leadership_);
  AddCompare(keys_.record, pb::Compare::MOD, mod_revision_, &txn);
  AddPut(keys_.record, value, /*lease=*/0, &txn);
  for (const std::string* key : {&keys_.leader, &keys_.record}) {
    txn.add_failure()->mutable_request_range()->set_key(*key);
  }
  ++under_way_;
  client_->Txn(std::move(txn), kPatience,
               [this, alive = alive_, value = std::move(value),
                done = std::move(done)](const absl::StatusOr<pb::TxnResponse>& reply) {
                 if (!*alive) return;
                 const absl::Status status = OnPut(value, reply);
                 if (!fenced_) done(status);
                 if (*alive) Settle();
               });
}

// Ensures: without an error mod_revision_ is that of `value`.
absl::Status EtcdJournal::OnPut(const std::string& value,
                                const absl::StatusOr<pb::TxnResponse>& reply) {
  if (!reply.ok()) {
    if (broken_.ok()) broken_ = reply.status();
    return broken_;
  }
  if (reply->succeeded()) {
    mod_revision_ = reply->header().revision();
    return absl::OkStatus();
  }
  // A try with a lost answer may have written it.
  if (reply->responses_size() == 2) {
    const pb::RangeResponse& leader = reply->responses(0).response_range();
    const pb::RangeResponse& record = reply->responses(1).response_range();
    const bool leads = leader.kvs_size() == 1 && leader.kvs(0).create_revision() == leadership_;
    if (leads && record.kvs_size() == 1 && record.kvs(0).value() == value) {
      mod_revision_ = record.kvs(0).mod_revision();
      return absl::OkStatus();
    }
  }
  Fence();
  return absl::AbortedError("fenced");
}

void EtcdJournal::Fence() {
  if (std::exchange(fenced_, true)) return;
  on_fenced_(absl::AbortedError("another service has taken the job over"));
}

void EtcdJournal::Forget(const std::string& run_id) {
  Retract(run_id, [](const absl::Status& /*status*/) {});
}

void EtcdJournal::Retract(const std::string& /*run_id*/, std::function<void(absl::Status)> done) {
  if (fenced_) return;
  pb::TxnRequest txn = WhileLeading(keys_, leadership_);
  AddDelete(keys_.record, &txn);
  ++under_way_;
  client_->Txn(
      std::move(txn), kPatience,
      [this, alive = alive_, done = std::move(done)](const absl::StatusOr<pb::TxnResponse>& reply) {
        if (!*alive) return;
        mod_revision_ = 0;
        // If the record can't be retracted, another service has the job.
        const bool refused = reply.ok() && !reply->succeeded();
        refused ? Fence() : done(reply.status());
        if (*alive) Settle();
      });
}

void EtcdJournal::Settle() {
  --under_way_;
  if (under_way_ == 0 && on_idle_) std::exchange(on_idle_, nullptr)();
}

void EtcdJournal::NotifyWhenIdle(std::function<void()> done) {
  if (under_way_ == 0 || fenced_) return done();
  on_idle_ = std::move(done);
}

}  // namespace ddprun::rendezvous
