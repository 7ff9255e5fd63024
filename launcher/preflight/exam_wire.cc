#include "launcher/preflight/exam_wire.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/preflight/core/link_exam.h"
#include "launcher/preflight/core/link_text.h"

namespace ddprun::launcher {
namespace {

using ExamJson = nlohmann::ordered_json;

constexpr size_t kNameMax = 256;
constexpr uint32_t kDatagramsMax = 100'000;
constexpr double kRateMax = 1e15;  // bit/s

absl::Status NotUnderstood(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("another node's ", what,
                   " is not understood; does ddprun --version say the "
                   "same on all nodes?"));
}

std::string ExamDump(const ExamJson& json) {
  return json.dump(-1, ' ', false, ExamJson::error_handler_t::replace);
}

// Reading without exceptions: each says whether the field is there and of its kind.
bool ReadNumber(const ExamJson& object, const char* name, uint64_t most, uint64_t* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  *value = found->get<uint64_t>();
  return *value <= most;
}

bool ReadString(const ExamJson& object, const char* name, size_t most, std::string* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  *value = found->get<std::string>();
  return value->size() <= most && IsUtf8(*value);
}

bool ReadFlag(const ExamJson& object, const char* name, bool* value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return false;
  *value = found->get<bool>();
  return true;
}

const ExamJson* ListIn(const ExamJson& object, const char* name, size_t most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->size() > most) return nullptr;
  return &*found;
}

ExamJson ObjectOf(absl::string_view text) {
  ExamJson json = ExamJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : ExamJson();
}

ExamJson SeatObject(const ExamSeat& seat) {
  return {{"host", seat.host},
          {"address", seat.address},
          {"datagrams", seat.datagrams},
          {"transfers", seat.transfers},
          {"claim", seat.claim.has_value() ? ExamJson(*seat.claim) : ExamJson(nullptr)}};
}

bool SeatOf(const ExamJson& object, ExamSeat* seat) {
  constexpr uint64_t kPortMax = 65535;
  uint64_t datagrams = 0;
  uint64_t transfers = 0;
  if (!object.is_object() || !ReadString(object, "host", kNameMax, &seat->host) ||
      !ReadString(object, "address", kNameMax, &seat->address) ||
      !ReadNumber(object, "datagrams", kPortMax, &datagrams) ||
      !ReadNumber(object, "transfers", kPortMax, &transfers)) {
    return false;
  }
  if (const auto claim = object.find("claim"); claim != object.end() && !claim->is_null()) {
    uint64_t rank = 0;
    if (!ReadNumber(object, "claim", UINT32_MAX, &rank)) return false;
    seat->claim = static_cast<uint32_t>(rank);
  }
  seat->host = Printable(seat->host);
  seat->datagrams = static_cast<uint16_t>(datagrams);
  seat->transfers = static_cast<uint16_t>(transfers);
  return true;
}

ExamJson WaysList(const std::vector<Way>& ways) {
  ExamJson list = ExamJson::array();
  for (const Way& way : ways) list.push_back({way.from, way.to});
  return list;
}

bool WaysOf(const ExamJson& list, uint32_t nodes, std::vector<Way>* ways) {
  if (!list.is_array() || list.size() > size_t{nodes} * nodes) return false;
  for (const ExamJson& each : list) {
    if (!each.is_array() || each.size() != 2 || !each[0].is_number_unsigned() ||
        !each[1].is_number_unsigned()) {
      return false;
    }
    const auto from = each[0].get<uint64_t>();
    const auto to = each[1].get<uint64_t>();
    if (from >= nodes || to >= nodes || from == to) return false;
    ways->push_back({.from = static_cast<uint32_t>(from), .to = static_cast<uint32_t>(to)});
  }
  return true;
}

// A number of nanoseconds or bit/s, where null means none.
bool ReadMaybe(const ExamJson& value, double most, std::optional<double>* number) {
  if (value.is_null()) return true;
  if (!value.is_number()) return false;
  *number = value.get<double>();
  return **number >= 0 && **number <= most;
}

ExamJson MaybeNs(const std::optional<absl::Duration>& duration) {
  return duration.has_value() ? ExamJson(absl::ToInt64Nanoseconds(*duration)) : ExamJson(nullptr);
}

bool LookOf(const ExamJson& object, uint32_t nodes, PeerLook* look) {
  constexpr double kLongestNs = 1e12;
  uint64_t peer = 0;
  uint64_t arrived = 0;
  std::optional<double> trip;
  if (!object.is_object() || nodes == 0 || !ReadNumber(object, "peer", nodes - 1, &peer) ||
      !ReadNumber(object, "arrived", kDatagramsMax, &arrived) ||
      !ReadFlag(object, "refused", &look->refused) ||
      !ReadFlag(object, "connected", &look->connected) || !object.contains("round_trip_ns") ||
      !ReadMaybe(object["round_trip_ns"], kLongestNs, &trip) || !object.contains("rate") ||
      !ReadMaybe(object["rate"], kRateMax, &look->rate)) {
    return false;
  }
  look->peer = static_cast<uint32_t>(peer);
  look->arrived = static_cast<uint32_t>(arrived);
  if (trip.has_value()) look->round_trip = absl::Nanoseconds(*trip);
  return true;
}

ExamJson MaybeSeconds(const std::optional<absl::Duration>& duration) {
  return duration.has_value() ? ExamJson(absl::ToDoubleSeconds(*duration)) : ExamJson(nullptr);
}

ExamJson FindingsList(const NetworkFacts& facts) {
  constexpr const char* kSides[] = {"sends", "receives", "both"};
  ExamJson list = ExamJson::array();
  for (const LinkFinding& finding : DescribeTroubles(facts)) {
    const Trouble& trouble = finding.trouble;
    ExamJson one = {{"severity", SeverityName(finding.text.severity)}, {"id", finding.text.id}};
    if (trouble.node.has_value()) {
      one["node"] = facts.nodes[*trouble.node].name;
      one["side"] = kSides[static_cast<size_t>(trouble.side)];
    } else {
      one["from"] = facts.nodes[trouble.way.from].name;
      one["to"] = facts.nodes[trouble.way.to].name;
    }
    one["what"] = finding.text.what;
    one["why"] = finding.text.why;
    one["mend"] = finding.text.mend;
    list.push_back(std::move(one));
  }
  return list;
}

ExamJson MeasuredWays(const NetworkFacts& facts) {
  ExamJson list = ExamJson::array();
  for (size_t i = 0; i < facts.ways.size(); ++i) {
    const WayFacts& way = facts.ways[i];
    if (way.sent == 0) continue;
    const std::optional<double> rate = way.BestRate();
    list.push_back({{"from", facts.nodes[i / facts.nodes.size()].name},
                    {"to", facts.nodes[i % facts.nodes.size()].name},
                    {"sent", way.sent},
                    {"arrived", way.arrived},
                    {"round_trip_s", MaybeSeconds(way.round_trip)},
                    {"bit_s", rate.has_value() ? ExamJson(*rate) : ExamJson(nullptr)},
                    {"looks_bit_s", way.rates}});
  }
  return list;
}

}  // namespace

std::string SeatJson(const ExamSeat& seat) { return ExamDump(SeatObject(seat)); }

absl::StatusOr<ExamSeat> ReadSeat(absl::string_view text) {
  ExamSeat seat;
  if (!SeatOf(ObjectOf(text), &seat)) return NotUnderstood("seat");
  return seat;
}

std::string TableJson(const ExamTable& table) {
  ExamJson seats = ExamJson::array();
  for (const auto& seat : table.seats) {
    seats.push_back(seat.has_value() ? SeatObject(*seat) : ExamJson(nullptr));
  }
  return ExamDump({{"token", table.token}, {"seats", std::move(seats)}});
}

absl::StatusOr<ExamTable> ReadTable(absl::string_view text) {
  const ExamJson json = ObjectOf(text);
  ExamTable table;
  const ExamJson* seats = ListIn(json, "seats", kExamNodesMax);
  if (seats == nullptr || !ReadNumber(json, "token", UINT64_MAX, &table.token)) {
    return NotUnderstood("table of nodes");
  }
  for (const ExamJson& each : *seats) {
    table.seats.emplace_back();
    if (each.is_null()) continue;
    if (!SeatOf(each, &table.seats.back().emplace())) return NotUnderstood("table of nodes");
  }
  return table;
}

std::string PlanJson(const ExamPlan& plan) {
  ExamJson rounds = ExamJson::array();
  for (const auto& round : plan.rounds) rounds.push_back(WaysList(round));
  return ExamDump({{"datagrams", plan.datagrams},
                   {"ways", WaysList(plan.ways)},
                   {"rounds", std::move(rounds)},
                   {"over", plan.over}});
}

absl::StatusOr<ExamPlan> ReadPlan(absl::string_view text, uint32_t nodes) {
  const ExamJson json = ObjectOf(text);
  ExamPlan plan;
  uint64_t datagrams = 0;
  const ExamJson* ways = ListIn(json, "ways", size_t{nodes} * nodes);
  const ExamJson* rounds =
      ListIn(json, "rounds", std::max<size_t>(size_t{nodes} + 1, kMoreRoundsMax));
  if (ways == nullptr || rounds == nullptr || !WaysOf(*ways, nodes, &plan.ways) ||
      !ReadNumber(json, "datagrams", kDatagramsMax, &datagrams) ||
      !ReadFlag(json, "over", &plan.over)) {
    return NotUnderstood("plan");
  }
  plan.datagrams = static_cast<uint32_t>(datagrams);
  for (const ExamJson& round : *rounds) {
    plan.rounds.emplace_back();
    if (!WaysOf(round, nodes, &plan.rounds.back())) return NotUnderstood("plan");
  }
  return plan;
}

std::string LooksJson(const NodeLooks& looks) {
  ExamJson peers = ExamJson::array();
  for (const PeerLook& look : looks.peers) {
    peers.push_back({{"peer", look.peer},
                     {"arrived", look.arrived},
                     {"round_trip_ns", MaybeNs(look.round_trip)},
                     {"rate", look.rate.has_value() ? ExamJson(*look.rate) : ExamJson(nullptr)},
                     {"refused", look.refused},
                     {"connected", look.connected}});
  }
  return ExamDump(
      {{"peers", std::move(peers)}, {"overrun", looks.overrun}, {"work_ns", MaybeNs(looks.work)}});
}

absl::StatusOr<NodeLooks> ReadLooks(absl::string_view text, uint32_t nodes) {
  constexpr double kLongestNs = 1e12;
  const ExamJson json = ObjectOf(text);
  NodeLooks looks;
  std::optional<double> work;
  const ExamJson* peers = ListIn(json, "peers", nodes);
  if (peers == nullptr || !ReadNumber(json, "overrun", UINT32_MAX, &looks.overrun) ||
      !json.contains("work_ns") || !ReadMaybe(json["work_ns"], kLongestNs, &work)) {
    return NotUnderstood("answer");
  }
  if (work.has_value()) looks.work = absl::Nanoseconds(*work);
  for (const ExamJson& each : *peers) {
    looks.peers.emplace_back();
    if (!LookOf(each, nodes, &looks.peers.back())) return NotUnderstood("answer");
  }
  return looks;
}

std::string VerdictJson(const ExamVerdict& verdict) {
  return ExamDump({{"found", verdict.found},
                   {"prevents", verdict.prevents},
                   {"text", verdict.text},
                   {"brief", verdict.brief}});
}

absl::StatusOr<ExamVerdict> ReadVerdict(absl::string_view text) {
  constexpr size_t kTextMax = 1 << 20;
  const ExamJson json = ObjectOf(text);
  ExamVerdict verdict;
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
  ExamJson nodes = ExamJson::array();
  for (const NodeFacts& node : facts.nodes) {
    nodes.push_back({{"name", node.name},
                     {"address", node.address},
                     {"answered", node.told},
                     {"work_s", MaybeSeconds(node.work)}});
  }
  return ExamDump({{"seconds", absl::ToDoubleSeconds(took)},
                   {"nodes", std::move(nodes)},
                   {"ways", MeasuredWays(facts)},
                   {"findings", FindingsList(facts)}});
}

}  // namespace ddprun::launcher
