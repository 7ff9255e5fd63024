#include "rendezvous/etcd/leader_finder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

// Patience with one question to etcd, as its members may be electing a leader of their own.
constexpr absl::Duration kLookPatience = absl::Milliseconds(1500);
// How long Locate() waits for an elected leader to serve.
constexpr absl::Duration kServesWithin = absl::Seconds(5);
// How long a leader that doesn't answer is left alone.
constexpr absl::Duration kAgain = absl::Milliseconds(500);
// How long one watch of a serving leader lasts: after it, a member of etcd that hangs is left.
constexpr absl::Duration kWatch = absl::Minutes(1);
// Candidates stand one after the other within this time, so that few of many nodes ask for a lease
// that they don't need.
constexpr int64_t kStandWithinUs = 40'000;
constexpr absl::Duration kPauseMin = absl::Seconds(1);
constexpr absl::Duration kPauseMax = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<LeaderFinder>> LeaderFinder::Create(
    EventLoop* loop, EtcdSettings settings, const std::string& run_id, std::string node_id,
    absl::Duration ttl, Callbacks callbacks) {
  const JobKeys keys = KeysOf(settings, run_id);
  absl::StatusOr<std::unique_ptr<EtcdClient>> client =
      EtcdClient::Create(loop, std::move(settings));
  if (!client.ok()) return client.status();
  return std::unique_ptr<LeaderFinder>(new LeaderFinder(
      loop, *std::move(client), keys, std::move(node_id), ttl, std::move(callbacks)));
}

LeaderFinder::LeaderFinder(EventLoop* loop, std::unique_ptr<EtcdClient> client, JobKeys keys,
                           std::string node_id, absl::Duration ttl, Callbacks callbacks)
    : loop_(loop),
      client_(std::move(client)),
      keys_(std::move(keys)),
      node_id_(std::move(node_id)),
      ttl_(ttl),
      callbacks_(std::move(callbacks)),
      pause_(kPauseMin),
      timer_(loop, [this] { std::exchange(on_due_, nullptr)(); }) {}

LeaderFinder::~LeaderFinder() = default;

// Handles an answer of etcd, unless a newer call has replaced this one.
template <typename Reply, typename Handler>
EtcdClient::Done<Reply> LeaderFinder::Step(Handler handler) {
  return [this, round = round_, handler](const absl::StatusOr<Reply>& reply) {
    if (round == round_) (this->*handler)(reply);
  };
}

void LeaderFinder::Locate(bool again, std::function<void(absl::StatusOr<std::string>)> found,
                          std::function<void()> moved) {
  ++round_;
  timer_.Disarm();
  found_ = std::move(found);
  moved_ = std::move(moved);
  asked_ = loop_->Now();
  again_ = again;
  Look();
}

void LeaderFinder::Look() {
  client_->Range(keys_.leader, kLookPatience, Step<pb::RangeResponse>(&LeaderFinder::OnLooked));
}

void LeaderFinder::OnLooked(const absl::StatusOr<pb::RangeResponse>& reply) {
  if (!reply.ok()) return Answer(reply.status());
  if (began_ == 0) began_ = reply->header().revision();
  const absl::StatusOr<std::optional<Leader>> leader = ReadLeader(*reply);
  if (!leader.ok()) return Answer(leader.status());
  if (leader->has_value()) return OnLeader(**leader);
  const bool was_ours = leads_;
  Supersede();
  const Instant now = loop_->Now();
  if (!may_stand_ || now < stands_from_) {
    return AwaitChange(reply->header().revision(),
                       std::min(kAgain, std::max(stands_from_ - now, absl::Milliseconds(10))));
  }
  on_due_ = [this] { Stand(); };
  // If only the service hangs, its own node stands first, because it is known to live.
  const int64_t turn_us =
      kStandWithinUs / 4 +
      static_cast<int64_t>(RandomNumber() % static_cast<uint64_t>(kStandWithinUs));
  timer_.Arm(now + absl::Microseconds(was_ours ? 0 : turn_us));
}

void LeaderFinder::OnLeader(const Leader& leader) {
  if (leads_ && leader.revision != standing_->revision) Supersede();
  const absl::Duration waited = loop_->Now() - asked_;
  const bool stale = leader.revision < told_revision_;
  const bool known = leader.revision == told_revision_ && leader.address == told_;
  const bool wanted = !leader.address.empty() && !stale && !(again_ && known);
  if (wanted || (known && waited >= kAgain)) {
    told_ = leader.address;
    told_revision_ = leader.revision;
    Watch(leader);
    return Answer(leader.address);
  }
  if (waited >= kServesWithin) {
    return Answer(absl::UnavailableError(
        absl::StrCat("node ", leader.node_id, " was chosen to serve the job, but does not yet")));
  }
  AwaitChange(leader.mod_revision, kAgain);
}

void LeaderFinder::AwaitChange(int64_t revision, absl::Duration patience) {
  client_->AwaitChange(keys_.leader, revision, patience,
                       [this, round = round_](const absl::Status& /*status*/) {
                         if (round == round_) Look();
                       });
}

// Called while there is a leader, because a service that hangs keeps its connections.
void LeaderFinder::Watch(const Leader& leader) {
  watched_ = leader.mod_revision;
  client_->AwaitChange(keys_.leader, leader.mod_revision, kWatch,
                       [this, round = round_](const absl::Status& /*status*/) {
                         if (round != round_) return;
                         client_->Range(keys_.leader, kLookPatience,
                                        Step<pb::RangeResponse>(&LeaderFinder::OnWatched));
                       });
}

void LeaderFinder::OnWatched(const absl::StatusOr<pb::RangeResponse>& reply) {
  if (!reply.ok()) return Watch({.mod_revision = watched_});  // etcd is away: the stream decides
  const absl::StatusOr<std::optional<Leader>> leader = ReadLeader(*reply);
  const bool serves = leader.ok() && leader->has_value();
  if (serves && (*leader)->revision == told_revision_) return Watch(**leader);
  if (moved_) std::exchange(moved_, nullptr)();
}

// This node's own service has lost the job.
void LeaderFinder::Supersede() {
  if (!std::exchange(leads_, false)) return;
  standing_.reset();
  callbacks_.on_superseded();
}

// ------------------------------------------------------------- election
//
// Which node is late for a job that has ended, and which begins a new run of the same name? The
// service of an ended job resigns with the key `ended`, which stays for some minutes. Without it a
// late node is elected, and waits for nodes that never come, or does the whole job again. But
// people use a name again at once, as torchrun lets them, and a new run must never be refused.
//
// Times can't distinguish the two: a late node that starts 3 s after the end, and the first node of
// a new run that starts then, look the same. So only what is certain is refused: etcd numbers its
// changes, and a node whose first look at etcd was before the change that wrote `ended` was started
// while the job was still there. For example, with `ended` written by change 120:
//
//   first look at 110 (the link to the service is cut)  →  late: ABORTED
//   first look at 120 or later                          →  a new run; the node learns of the end
//
// The claim compares the two in one transaction, and removes the key: nodes of the new run are not
// late for the old one at a takeover. To shorten the wait of a node in the second row would refuse
// a new run whose other nodes take long to start; a message does no harm.

void LeaderFinder::Stand() {
  const auto lease = static_cast<int64_t>(RandomNumber() >> 1U | 1U);
  standing_ = Election{.lease = lease,
                       .revision = 0,
                       .asked = loop_->Now(),
                       .ttl = ttl_,
                       .vanished = "",
                       .ended = "",
                       .endpoints = {}};
  client_->Grant(lease, ttl_, kLookPatience,
                 Step<pb::LeaseGrantResponse>(&LeaderFinder::OnGranted));
}

void LeaderFinder::OnGranted(const absl::StatusOr<pb::LeaseGrantResponse>& reply) {
  if (!reply.ok()) return Answer(reply.status());
  standing_->ttl = absl::Seconds(reply->ttl());
  pb::TxnRequest txn;
  AddCompare(keys_.leader, pb::Compare::CREATE, 0, &txn);
  pb::Compare* began_after_end = txn.add_compare();
  began_after_end->set_key(keys_.ended);
  began_after_end->set_result(pb::Compare::LESS);
  began_after_end->set_target(pb::Compare::MOD);
  began_after_end->set_mod_revision(began_ + 1);
  txn.add_success()->mutable_request_range()->set_key(keys_.host);
  txn.add_success()->mutable_request_range()->set_key(keys_.ended);
  AddPut(keys_.leader, LeaderValue(node_id_, ""), standing_->lease, &txn);
  AddPut(keys_.host, node_id_, /*lease=*/0, &txn);
  AddDelete(keys_.ended, &txn);
  txn.add_failure()->mutable_request_range()->set_key(keys_.leader);
  txn.add_failure()->mutable_request_range()->set_key(keys_.ended);
  client_->Txn(std::move(txn), kLookPatience, Step<pb::TxnResponse>(&LeaderFinder::OnClaimed));
}

void LeaderFinder::OnClaimed(const absl::StatusOr<pb::TxnResponse>& reply) {
  if (!reply.ok()) return Answer(reply.status());
  const bool answered = reply->responses_size() >= 2;
  const pb::RangeResponse ended =
      answered ? reply->responses(1).response_range() : pb::RangeResponse();
  if (!reply->succeeded() || !answered) {
    // Another node was first; or this one was, by a try with a lost answer: then its lease ends,
    // and with it the key.
    client_->Revoke(standing_->lease, kLookPatience, [](const auto& /*reply*/) {});
    standing_.reset();
    const bool nobody_leads = answered && reply->responses(0).response_range().kvs().empty();
    if (!nobody_leads || ended.kvs().empty()) return Look();
    return Answer(absl::AbortedError(ended.kvs(0).value()));
  }
  standing_->revision = reply->header().revision();
  const pb::RangeResponse& host = reply->responses(0).response_range();
  if (!host.kvs().empty() && host.kvs(0).value() != node_id_) {
    standing_->vanished = host.kvs(0).value();
  }
  if (!ended.kvs().empty()) standing_->ended = ended.kvs(0).value();
  standing_->endpoints = client_->Endpoints();
  leads_ = true;
  const Election election = *standing_;
  AwaitChange(election.revision, kAgain);
  callbacks_.on_elected(election);
}

void LeaderFinder::Resign() {
  if (!std::exchange(leads_, false)) return;
  stands_from_ = loop_->Now() + pause_;
  pause_ = std::min(2 * pause_, kPauseMax);
  const Election former = *std::exchange(standing_, std::nullopt);
  client_->Txn(Resignation(keys_, former.revision, /*node_lives=*/true), kLookPatience,
               [this, lease = former.lease](const absl::StatusOr<pb::TxnResponse>& /*reply*/) {
                 client_->Revoke(lease, kLookPatience, [](const auto& /*reply*/) {});
               });
}

void LeaderFinder::Leave(std::function<void()> done) {
  ++round_;
  timer_.Disarm();
  found_ = nullptr;
  moved_ = nullptr;
  may_stand_ = false;
  if (!std::exchange(leads_, false)) return done();
  client_->Txn(
      Resignation(keys_, standing_->revision, /*node_lives=*/true), kLookPatience,
      [done = std::move(done)](const absl::StatusOr<pb::TxnResponse>& /*reply*/) { done(); });
}

void LeaderFinder::Answer(absl::StatusOr<std::string> target) {
  if (!target.ok()) ++round_;
  if (found_) std::exchange(found_, nullptr)(std::move(target));
}

}  // namespace ddprun::rendezvous
