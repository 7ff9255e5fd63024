#include "rendezvous/etcd/leader_key.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::rendezvous {

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
