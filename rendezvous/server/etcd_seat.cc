#include "rendezvous/server/etcd_seat.h"

#include <optional>
#include <utility>

#include "base/address.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

constexpr absl::Duration kPatience = absl::Seconds(2);
// How long late nodes learn that the job has ended: the default of the join timeout, after which a
// node that reached etcd but no service has given up.
constexpr absl::Duration kEndedIsKnown = absl::Minutes(10);

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdSeat>> EtcdSeat::Take(
    EventLoop* loop, EtcdSeatConfig config, std::function<void(absl::Status)> on_lost) {
  std::unique_ptr<EtcdSeat> seat(new EtcdSeat(loop, std::move(config)));
  EtcdSeat* const raw = seat.get();
  const EtcdSeatConfig& c = raw->config_;
  raw->on_lost_ = std::move(on_lost);
  raw->keys_ = KeysOf(c.settings, c.run_id);
  absl::StatusOr<std::unique_ptr<EtcdClient>> client = EtcdClient::Create(loop, c.settings);
  if (!client.ok()) return client.status();
  raw->client_ = *std::move(client);
  const auto lose = [raw](const absl::Status& why) { raw->Lose(why); };
  raw->leadership_ = std::make_unique<Leadership>(loop, raw->client_.get(), c.lease,
                                                  Instant::FromNanoseconds(c.asked_ns),
                                                  absl::Seconds(c.ttl_s), lose);
  raw->journal_ = std::make_shared<EtcdJournal>(loop, raw->client_.get(), c.run_id, raw->keys_,
                                                c.revision, lose);
  absl::Status loaded = raw->Await([raw](const auto& done) {
    raw->journal_->Load([raw, done](absl::StatusOr<std::vector<KeptJob>> kept) {
      const absl::Status status = kept.status();
      if (kept.ok()) raw->kept_ = *std::move(kept);
      done(status);
    });
  });
  if (!loaded.ok()) return loaded;
  for (KeptJob& job : raw->kept_) job.record.vanished = NodeId(c.vanished);
  return seat;
}

// Runs the loop until `begin` has called back, or the leadership is lost.
absl::Status EtcdSeat::Await(const std::function<void(std::function<void(absl::Status)>)>& begin) {
  if (!lost_.ok()) return lost_;
  auto result = std::make_shared<std::optional<absl::Status>>();
  awaited_ = [this, result](const absl::Status& status) {
    if (result->has_value()) return;
    *result = status;
    loop_->Stop();
  };
  begin(awaited_);
  while (!result->has_value()) loop_->Run();
  awaited_ = nullptr;
  return **result;
}

absl::Status EtcdSeat::Publish(int port) {
  return Await([this, port](const auto& done) {
    pb::TxnRequest txn = WhileLeading(keys_, config_.revision);
    AddPut(keys_.leader, LeaderValue(config_.node_id, HostPort(config_.node_address, port)),
           config_.lease, &txn);
    client_->Txn(std::move(txn), kPatience, [done](const absl::StatusOr<pb::TxnResponse>& reply) {
      if (!reply.ok()) return done(reply.status());
      done(reply->succeeded() ? absl::OkStatus()
                              : absl::AbortedError("another service has taken the job over"));
    });
  });
}

void EtcdSeat::Lose(absl::Status why) {
  if (!lost_.ok()) return;
  lost_ = std::move(why);
  if (awaited_) return awaited_(lost_);
  on_lost_(lost_);
}

void EtcdSeat::Resign(pb::TxnRequest resignation, std::function<void(absl::Status)> done) {
  client_->Txn(
      std::move(resignation), kPatience,
      [done = std::move(done)](const absl::StatusOr<pb::TxnResponse>& r) { done(r.status()); });
}

void EtcdSeat::Leave(bool node_lives, const std::string& ended) {
  if (!lost_.ok()) return;
  Timer bound(loop_, [this] {
    if (awaited_) awaited_(absl::DeadlineExceededError(""));
  });
  bound.Arm(loop_->Now() + kPatience);
  Await([this, node_lives, &ended](const auto& done) {
    journal_->NotifyWhenIdle([this, node_lives, ended, done] {
      pb::TxnRequest resignation = Resignation(keys_, config_.revision, node_lives);
      if (ended.empty()) return Resign(std::move(resignation), done);
      client_->Grant(/*lease=*/0, kEndedIsKnown, kPatience,
                     [this, resignation = std::move(resignation), ended,
                      done](const absl::StatusOr<pb::LeaseGrantResponse>& lease) mutable {
                       if (lease.ok()) AddPut(keys_.ended, ended, lease->id(), &resignation);
                       Resign(std::move(resignation), done);
                     });
    });
  }).IgnoreError();  // if this fails, the lease expires on its own
}

}  // namespace ddprun::rendezvous
