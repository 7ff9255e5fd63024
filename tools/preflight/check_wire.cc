#include "tools/preflight/check_wire.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/preflight/core/link_check.h"
#include "tools/preflight/core/link_text.h"

namespace ddprun::launcher {
namespace {

using CheckJson = nlohmann::ordered_json;

constexpr size_t kNameMax = 256;
constexpr uint32_t kDatagramsMax = 100'000;
constexpr double kRateMax = 1e15;  // bit/s

absl::Status NotUnderstood(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("another node's ", what,
                   " is not understood; does ddprun --version say the "
                   "same on all nodes?"));
}

std::string CheckDump(const CheckJson& json) {
  return json.dump(-1, ' ', false, CheckJson::error_handler_t::replace);
}

// Reading without exceptions: each says whether the field is there and of its kind.
bool ReadNumber(const CheckJson& object, const char* name, uint64_t most, uint64_t* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  *value = found->get<uint64_t>();
  return *value <= most;
}

bool ReadString(const CheckJson& object, const char* name, size_t most, std::string* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  *value = found->get<std::string>();
  return value->size() <= most && IsUtf8(*value);
}

bool ReadFlag(const CheckJson& object, const char* name, bool* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return false;
  *value = found->get<bool>();
  return true;
}

const CheckJson* ListIn(const CheckJson& object, const char* name, size_t most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->size() > most) return nullptr;
  return &*found;
}

CheckJson ObjectOf(absl::string_view text) {
  CheckJson json = CheckJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : CheckJson();
}

CheckJson EndpointObject(const ProbeEndpoint& endpoint) {
  return {{"host", endpoint.host},
          {"address", endpoint.address},
          {"datagrams", endpoint.datagrams},
          {"transfers", endpoint.transfers},
          {"claim", endpoint.claim.has_value() ? CheckJson(*endpoint.claim) : CheckJson(nullptr)}};
}

bool EndpointOf(const CheckJson& object, ProbeEndpoint* endpoint) {
  constexpr uint64_t kPortMax = 65535;
  uint64_t datagrams = 0;
  uint64_t transfers = 0;
  if (!object.is_object() || !ReadString(object, "host", kNameMax, &endpoint->host) ||
      !ReadString(object, "address", kNameMax, &endpoint->address) ||
      !ReadNumber(object, "datagrams", kPortMax, &datagrams) ||
      !ReadNumber(object, "transfers", kPortMax, &transfers)) {
    return false;
  }
  if (const auto claim = object.find("claim"); claim != object.end() && !claim->is_null()) {
    uint64_t rank = 0;
    if (!ReadNumber(object, "claim", UINT32_MAX, &rank)) return false;
    endpoint->claim = static_cast<uint32_t>(rank);
  }
  endpoint->host = Printable(endpoint->host);
  endpoint->datagrams = static_cast<uint16_t>(datagrams);
  endpoint->transfers = static_cast<uint16_t>(transfers);
  return true;
}

CheckJson LinksList(const std::vector<Link>& links) {
  CheckJson list = CheckJson::array();
  for (const Link& link : links) list.push_back({link.from, link.to});
  return list;
}

bool LinksOf(const CheckJson& list, uint32_t nodes, std::vector<Link>* links) {
  if (!list.is_array() || list.size() > size_t{nodes} * nodes) return false;
  for (const CheckJson& each : list) {
    if (!each.is_array() || each.size() != 2 || !each[0].is_number_unsigned() ||
        !each[1].is_number_unsigned()) {
      return false;
    }
    const auto from = each[0].get<uint64_t>();
    const auto to = each[1].get<uint64_t>();
    if (from >= nodes || to >= nodes || from == to) return false;
    links->push_back({.from = static_cast<uint32_t>(from), .to = static_cast<uint32_t>(to)});
  }
  return true;
}

// A number of nanoseconds or bit/s, where null means none.
bool ReadMaybe(const CheckJson& value, double most, std::optional<double>* number) {
  if (value.is_null()) return true;
  if (!value.is_number()) return false;
  *number = value.get<double>();
  return **number >= 0 && **number <= most;
}

CheckJson MaybeNs(const std::optional<absl::Duration>& duration) {
  return duration.has_value() ? CheckJson(absl::ToInt64Nanoseconds(*duration)) : CheckJson(nullptr);
}

bool MeasurementOf(const CheckJson& object, uint32_t nodes, PeerMeasurement* measurement) {
  constexpr double kLongestNs = 1e12;
  uint64_t peer = 0;
  uint64_t arrived = 0;
  std::optional<double> trip;
  if (!object.is_object() || nodes == 0 || !ReadNumber(object, "peer", nodes - 1, &peer) ||
      !ReadNumber(object, "arrived", kDatagramsMax, &arrived) ||
      !ReadFlag(object, "refused", &measurement->refused) ||
      !ReadFlag(object, "connected", &measurement->connected) ||
      !object.contains("round_trip_ns") || !ReadMaybe(object["round_trip_ns"], kLongestNs, &trip) ||
      !object.contains("rate") || !ReadMaybe(object["rate"], kRateMax, &measurement->rate)) {
    return false;
  }
  measurement->peer = static_cast<uint32_t>(peer);
  measurement->arrived = static_cast<uint32_t>(arrived);
  if (trip.has_value()) measurement->round_trip = absl::Nanoseconds(*trip);
  return true;
}

CheckJson MaybeSeconds(const std::optional<absl::Duration>& duration) {
  return duration.has_value() ? CheckJson(absl::ToDoubleSeconds(*duration)) : CheckJson(nullptr);
}

CheckJson FindingsList(const NetworkFacts& facts) {
  constexpr const char* kSides[] = {"sends", "receives", "both"};
  CheckJson list = CheckJson::array();
  for (const LinkFinding& finding : DescribeTroubles(facts)) {
    const Trouble& trouble = finding.trouble;
    CheckJson one = {{"severity", SeverityName(finding.text.severity)}, {"id", finding.text.id}};
    if (trouble.node.has_value()) {
      one["node"] = facts.nodes[*trouble.node].name;
      one["side"] = kSides[static_cast<size_t>(trouble.side)];
    } else {
      one["from"] = facts.nodes[trouble.link.from].name;
      one["to"] = facts.nodes[trouble.link.to].name;
    }
    one["what"] = finding.text.what;
    one["why"] = finding.text.why;
    one["fix"] = finding.text.fix;
    list.push_back(std::move(one));
  }
  return list;
}

CheckJson MeasuredLinks(const NetworkFacts& facts) {
  CheckJson list = CheckJson::array();
  for (size_t i = 0; i < facts.links.size(); ++i) {
    const LinkFacts& link = facts.links[i];
    if (link.sent == 0) continue;
    const std::optional<double> rate = link.BestRate();
    list.push_back({{"from", facts.nodes[i / facts.nodes.size()].name},
                    {"to", facts.nodes[i % facts.nodes.size()].name},
                    {"sent", link.sent},
                    {"arrived", link.arrived},
                    {"round_trip_s", MaybeSeconds(link.round_trip)},
                    {"bit_s", rate.has_value() ? CheckJson(*rate) : CheckJson(nullptr)},
                    {"looks_bit_s", link.rates}});
  }
  return list;
}

}  // namespace

std::string EndpointJson(const ProbeEndpoint& endpoint) {
  return CheckDump(EndpointObject(endpoint));
}

absl::StatusOr<ProbeEndpoint> ReadEndpoint(absl::string_view text) {
  ProbeEndpoint endpoint;
  if (!EndpointOf(ObjectOf(text), &endpoint)) return NotUnderstood("endpoint");
  return endpoint;
}

std::string TableJson(const EndpointTable& table) {
  CheckJson endpoints = CheckJson::array();
  for (const auto& endpoint : table.endpoints) {
    endpoints.push_back(endpoint.has_value() ? EndpointObject(*endpoint) : CheckJson(nullptr));
  }
  return CheckDump({{"token", table.token}, {"seats", std::move(endpoints)}});
}

absl::StatusOr<EndpointTable> ReadTable(absl::string_view text) {
  const CheckJson json = ObjectOf(text);
  EndpointTable table;
  const CheckJson* endpoints = ListIn(json, "seats", kCheckNodesMax);
  if (endpoints == nullptr || !ReadNumber(json, "token", UINT64_MAX, &table.token)) {
    return NotUnderstood("table of nodes");
  }
  for (const CheckJson& each : *endpoints) {
    table.endpoints.emplace_back();
    if (each.is_null()) continue;
    if (!EndpointOf(each, &table.endpoints.back().emplace()))
      return NotUnderstood("table of nodes");
  }
  return table;
}

std::string PlanJson(const ProbePlan& plan) {
  CheckJson rounds = CheckJson::array();
  for (const auto& round : plan.rounds) rounds.push_back(LinksList(round));
  return CheckDump({{"datagrams", plan.datagrams},
                    {"ways", LinksList(plan.links)},
                    {"rounds", std::move(rounds)},
                    {"over", plan.over}});
}

absl::StatusOr<ProbePlan> ReadPlan(absl::string_view text, uint32_t nodes) {
  const CheckJson json = ObjectOf(text);
  ProbePlan plan;
  uint64_t datagrams = 0;
  const CheckJson* links = ListIn(json, "ways", size_t{nodes} * nodes);
  const CheckJson* rounds =
      ListIn(json, "rounds", std::max<size_t>(size_t{nodes} + 1, kMoreRoundsMax));
  if (links == nullptr || rounds == nullptr || !LinksOf(*links, nodes, &plan.links) ||
      !ReadNumber(json, "datagrams", kDatagramsMax, &datagrams) ||
      !ReadFlag(json, "over", &plan.over)) {
    return NotUnderstood("plan");
  }
  plan.datagrams = static_cast<uint32_t>(datagrams);
  for (const CheckJson& round : *rounds) {
    plan.rounds.emplace_back();
    if (!LinksOf(round, nodes, &plan.rounds.back())) return NotUnderstood("plan");
  }
  return plan;
}

std::string MeasurementsJson(const NodeMeasurements& measurements) {
  CheckJson peers = CheckJson::array();
  for (const PeerMeasurement& measurement : measurements.peers) {
    peers.push_back(
        {{"peer", measurement.peer},
         {"arrived", measurement.arrived},
         {"round_trip_ns", MaybeNs(measurement.round_trip)},
         {"rate", measurement.rate.has_value() ? CheckJson(*measurement.rate) : CheckJson(nullptr)},
         {"refused", measurement.refused},
         {"connected", measurement.connected}});
  }
  return CheckDump({{"peers", std::move(peers)},
                    {"overrun", measurements.overrun},
                    {"work_ns", MaybeNs(measurements.work)}});
}

absl::StatusOr<NodeMeasurements> ReadMeasurements(absl::string_view text, uint32_t nodes) {
  constexpr double kLongestNs = 1e12;
  const CheckJson json = ObjectOf(text);
  NodeMeasurements measurements;
  std::optional<double> work;
  const CheckJson* peers = ListIn(json, "peers", nodes);
  if (peers == nullptr || !ReadNumber(json, "overrun", UINT32_MAX, &measurements.overrun) ||
      !json.contains("work_ns") || !ReadMaybe(json["work_ns"], kLongestNs, &work)) {
    return NotUnderstood("answer");
  }
  if (work.has_value()) measurements.work = absl::Nanoseconds(*work);
  for (const CheckJson& each : *peers) {
    measurements.peers.emplace_back();
    if (!MeasurementOf(each, nodes, &measurements.peers.back())) return NotUnderstood("answer");
  }
  return measurements;
}

std::string VerdictJson(const NetworkVerdict& verdict) {
  return CheckDump({{"found", verdict.found},
                    {"prevents", verdict.prevents},
                    {"text", verdict.text},
                    {"brief", verdict.brief}});
}

absl::StatusOr<NetworkVerdict> ReadVerdict(absl::string_view text) {
  constexpr size_t kTextMax = 1 << 20;
  const CheckJson json = ObjectOf(text);
  NetworkVerdict verdict;
  if (!ReadFlag(json, "found", &verdict.found) || !ReadFlag(json, "prevents", &verdict.prevents) ||
      !ReadString(json, "text", kTextMax, &verdict.text) ||
      !ReadString(json, "brief", kTextMax, &verdict.brief)) {
    return NotUnderstood("verdict");
  }
  verdict.text = Printable(verdict.text);
  verdict.brief = Printable(verdict.brief);
  return verdict;
}

std::string ReportJson(const NetworkFacts& facts, absl::Duration took) {
  CheckJson nodes = CheckJson::array();
  for (const NodeFacts& node : facts.nodes) {
    nodes.push_back({{"name", node.name},
                     {"address", node.address},
                     {"answered", node.told},
                     {"work_s", MaybeSeconds(node.work)}});
  }
  return CheckDump({{"seconds", absl::ToDoubleSeconds(took)},
                    {"nodes", std::move(nodes)},
                    {"ways", MeasuredLinks(facts)},
                    {"findings", FindingsList(facts)}});
}

}  // namespace ddprun::launcher
