#include "rendezvous/etcd/leadership.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"

// How long this service may believe that it leads.
//
// etcd restarts the lease's time when it handles a renewal, which is some time after the renewal
// was sent and before its answer arrives. If until_ counted from the answer, this service would
// believe that it leads when etcd may already have ended the lease and elected another node. So
// until_ counts from `sent`. Both sides only measure durations; no clocks are compared.
//
// Example: a lease of 2 s, so a renewal every 500 ms; no member of etcd answers from 200 ms on.
//
//   ms    event                          until_   next renewal
//   0     the lease is asked for         2000     at once
//   100   renewal sent; answer at 140    2100     600, not 640
//   600   sent; fails at 1100            2100     1100
//   1100  sent; fails at 1600            2100     1600
//   1600  sent; no answer                2100
//   2100  end_ fires: the leadership is lost
//
// Safety doesn't depend on until_: etcd refuses this service's records once the leader's key has
// another create revision (docs/decisions/0051), and no decision is sent before it is recorded.

namespace ddprun::rendezvous {
namespace {

// Renewals in the time of one lease. Two may fail in a row, so the client has time to turn to
// another member of etcd when the one that it asked goes down.
constexpr int kRenewals = 4;

}  // namespace

Leadership::Leadership(EventLoop* loop, EtcdClient* client, int64_t lease, Instant asked,
                       absl::Duration ttl, std::function<void(absl::Status)> on_lost)
    : loop_(loop),
      client_(client),
      lease_(lease),
      ttl_(ttl),
      until_(asked + ttl),
      on_lost_(std::move(on_lost)),
      renewal_(loop, [this] { Renew(); }),
      end_(loop, [this] {
        Lose(last_error_.ok() ? absl::UnavailableError(client_->Name() + " does not answer")
                              : last_error_);
      }) {
  end_.Arm(until_);
  renewal_.Arm(loop->Now());
}

Leadership::~Leadership() { *alive_ = false; }

void Leadership::Renew() {
  const Instant sent = loop_->Now();
  client_->KeepAlive(
      lease_, std::min(ttl_ / kRenewals, EtcdClient::kTryTimeout),
      [this, alive = alive_, sent](const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& r) {
        if (*alive) OnAnswer(sent, r);
      });
}

void Leadership::OnAnswer(Instant sent,
                          const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& reply) {
  if (lost_) return;
  if (!reply.ok()) {
    last_error_ = reply.status();
    return renewal_.Arm(sent + ttl_ / kRenewals);
  }
  // etcd answers 0 for a lease that has expired or was revoked.
  if (reply->ttl() <= 0) {
    return Lose(absl::AbortedError("its lease in etcd is over: it was not heard of in time"));
  }
  last_error_ = absl::OkStatus();
  ttl_ = absl::Seconds(reply->ttl());
  until_ = sent + ttl_;
  end_.Arm(until_);
  renewal_.Arm(sent + ttl_ / kRenewals);
}

void Leadership::Lose(absl::Status why) {
  if (std::exchange(lost_, true)) return;
  renewal_.Disarm();
  end_.Disarm();
  on_lost_(std::move(why));
}

namespace pb = etcdserverpb;

JobKeys KeysOf(const EtcdSettings& settings, const std::string& run_id) {
  const std::string folder = absl::StrCat(settings.prefix, "/", run_id, "/");
  return {.leader = absl::StrCat(folder, "leader"),
          .host = absl::StrCat(folder, "host"),
          .record = absl::StrCat(folder, "record"),
          .ended = absl::StrCat(folder, "ended")};
}

pb::RangeRequest AllKeys(const EtcdSettings& settings, int64_t limit) {
  pb::RangeRequest request;
  request.set_key(settings.prefix + "/");
  request.set_range_end(settings.prefix + "0");  // the byte after the slash
  request.set_limit(limit);
  request.set_keys_only(true);
  return request;
}

std::vector<std::string> JobsOf(const EtcdSettings& settings, const pb::RangeResponse& keys) {
  std::set<std::string> jobs;
  for (const pb::KeyValue& kv : keys.kvs()) {
    absl::string_view name = kv.key();
    if (!absl::ConsumePrefix(&name, settings.prefix + "/")) continue;
    if (absl::ConsumeSuffix(&name, "/leader") || absl::ConsumeSuffix(&name, "/record")) {
      jobs.emplace(name);
    }
  }
  return {jobs.begin(), jobs.end()};
}

absl::StatusOr<std::optional<Leader>> ReadLeader(const pb::RangeResponse& reply) {
  if (reply.kvs().empty()) return std::optional<Leader>();
  const pb::KeyValue& kv = reply.kvs(0);
  const nlohmann::json value =
      nlohmann::json::parse(kv.value(), nullptr, /*allow_exceptions=*/false);
  const auto text = [&value](const char* name) -> std::optional<std::string> {
    const auto found = value.find(name);
    if (found == value.end() || !found->is_string()) return std::nullopt;
    return found->template get<std::string>();
  };
  if (!value.is_object() || !text("node") || !text("address")) {
    return absl::DataLossError(absl::StrCat(
        "the key ", Quoted(kv.key()), " of etcd holds ", Quoted(kv.value()),
        ", which ddprun did not write; delete it, or give another --rdzv_conf etcd_prefix=…"));
  }
  return Leader{.revision = kv.create_revision(),
                .mod_revision = kv.mod_revision(),
                .lease = kv.lease(),
                .node_id = *text("node"),
                .address = *text("address")};
}

std::string LeaderValue(const std::string& node_id, const std::string& address) {
  const nlohmann::json value = {{"node", node_id}, {"address", address}};
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AddCompare(const std::string& key, pb::Compare::CompareTarget field, int64_t value,
                pb::TxnRequest* txn) {
  pb::Compare* compare = txn->add_compare();
  compare->set_key(key);
  compare->set_result(pb::Compare::EQUAL);
  compare->set_target(field);
  if (field == pb::Compare::CREATE) {
    compare->set_create_revision(value);
  } else {
    compare->set_mod_revision(value);
  }
}

void AddPut(const std::string& key, const std::string& value, int64_t lease, pb::TxnRequest* txn) {
  pb::PutRequest* put = txn->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
  put->set_lease(lease);
}

void AddDelete(const std::string& key, pb::TxnRequest* txn) {
  txn->add_success()->mutable_request_delete_range()->set_key(key);
}

pb::TxnRequest WhileLeading(const JobKeys& keys, int64_t revision) {
  pb::TxnRequest txn;
  AddCompare(keys.leader, pb::Compare::CREATE, revision, &txn);
  return txn;
}

pb::TxnRequest Resignation(const JobKeys& keys, int64_t revision, bool node_lives) {
  pb::TxnRequest txn = WhileLeading(keys, revision);
  if (node_lives) AddDelete(keys.host, &txn);
  AddDelete(keys.leader, &txn);
  return txn;
}

}  // namespace ddprun::rendezvous
