#include "launcher/preflight/network_exam.h"

#include <poll.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "launcher/os/host_probe.h"
#include "launcher/preflight/core/link_exam.h"
#include "launcher/preflight/core/link_judge.h"
#include "launcher/preflight/core/link_text.h"
#include "launcher/preflight/datagram_exchange.h"
#include "launcher/preflight/pair_transfer.h"
#include "launcher/preflight/work_sample.h"

namespace ddprun::launcher {
namespace {

// For all nodes to come: their agents have started them at the same moment.
constexpr absl::Duration kComing = absl::Milliseconds(2500);
// For a pass's datagrams to be sent, which takes a third of a second, and told of.
constexpr absl::Duration kSendingPass = absl::Milliseconds(2500);
// For a round's transfers, at worst, and once more for the answer.
constexpr absl::Duration kRound = absl::Milliseconds(1000);
constexpr absl::Duration kAnswer = absl::Milliseconds(1500);
// When node 0 says nothing for so long, it is gone.
constexpr absl::Duration kSilence = absl::Seconds(20);
// Datagrams that are still on their way.
constexpr absl::Duration kSettling = absl::Milliseconds(40);
// No new pass after this.
constexpr absl::Duration kLastPass = absl::Milliseconds(3600);
// Beyond a common deadline, for each of those that come after one that is missing.
constexpr absl::Duration kLateReading = absl::Milliseconds(50);

std::string Key(const std::string& name) { return "ddprun_preflight/" + name; }
std::string Key(const char* name, uint32_t a) { return Key(absl::StrCat(name, "/", a)); }
std::string Key(const char* name, uint32_t a, uint32_t b) {
  return Key(absl::StrCat(name, "/", a, "/", b));
}

// One node's part: what it measures.
class Examinee {
 public:
  Examinee(const ExamPlace& place, Meeting* meeting) : place_(place), meeting_(meeting) {}
  Examinee(const Examinee&) = delete;
  Examinee& operator=(const Examinee&) = delete;
  ~Examinee() { meeting_->set_on_trying(nullptr); }

  absl::Status Open();
  absl::Status TakeSeat();
  absl::Status Sit(const ExamTable& table);
  // A pass, without the last answer. `counted` is called when its datagrams are sent, and returns
  // when everybody's are.
  template <typename Counted>
  absl::StatusOr<NodeLooks> Measure(uint32_t pass, const ExamPlan& plan, const Counted& counted);

  std::set<uint32_t> Heard() { return datagrams_->Heard(); }
  const ExamSeat& seat() const { return seat_; }
  void SendHere();

 private:
  void Transfer(const Way& pair, NodeLooks* looks);
  PeerLook* LookAt(uint32_t peer, NodeLooks* looks);

  const ExamPlace place_;
  Meeting* meeting_;
  ExamSeat seat_;
  std::unique_ptr<DatagramExchange> datagrams_;
  std::optional<TransferDoor> door_;
  ExamTable table_;
  std::optional<SocketAddress> first_;  // node 0's datagram address, as far as it can be guessed
  uint32_t rounds_ = 0;                 // so far
};

absl::Status Examinee::Open() {
  // Where a node that doesn't get through to the store can still be heard.
  const uint16_t port = place_.node == 0 ? place_.master_port : 0;
  DDPRUN_ASSIGN_OR_RETURN(datagrams_, DatagramExchange::Open(port));
  DDPRUN_ASSIGN_OR_RETURN(BoundSocket listener, BindAny(SOCK_STREAM, 0));
  door_.emplace(std::move(listener));
  seat_.host = Hostname();
  seat_.datagrams = datagrams_->port();
  seat_.transfers = door_->port();
  seat_.claim = place_.claim;
  if (place_.node == 0) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(seat_.address,
                          LocalAddressToward(place_.master_addr, place_.master_port));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> masters, ResolveHost(place_.master_addr));
  const auto first = ParseAddress(masters.front(), place_.master_port, datagrams_->family());
  if (first.ok()) first_ = *first;
  meeting_->set_on_trying([this] { SendHere(); });
  return absl::OkStatus();
}

void Examinee::SendHere() {
  if (first_.has_value()) datagrams_->SendHere(place_.node, *first_);
}

absl::Status Examinee::TakeSeat() {
  return meeting_->Set(Key("seat", place_.node), SeatJson(seat_), MonotonicNow() + kSilence);
}

// Addresses of the others; node 0's is where the store is.
absl::Status Examinee::Sit(const ExamTable& table) {
  table_ = table;
  if (table.seats.size() != place_.nodes) {
    return absl::InvalidArgumentError("the exam's table is of another number of nodes");
  }
  std::vector<SocketAddress> peers(table.seats.size());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> masters, ResolveHost(place_.master_addr));
  for (uint32_t node = 0; node < peers.size(); ++node) {
    if (!table_.seats[node].has_value() || node == place_.node) continue;
    ExamSeat& seat = *table_.seats[node];
    if (seat.address.empty()) seat.address = masters.front();
    DDPRUN_ASSIGN_OR_RETURN(peers[node],
                            ParseAddress(seat.address, seat.datagrams, datagrams_->family()));
  }
  datagrams_->Begin(place_.node, table_.token, std::move(peers));
  return absl::OkStatus();
}

PeerLook* Examinee::LookAt(uint32_t peer, NodeLooks* looks) {
  for (PeerLook& look : looks->peers) {
    if (look.peer == peer) return &look;
  }
  return &looks->peers.emplace_back(PeerLook{.peer = peer});
}

void Examinee::Transfer(const Way& pair, NodeLooks* looks) {
  const TransferKey key{.token = table_.token, .round = rounds_};
  if (pair.to == place_.node) {
    door_->TransferTo(key, LookAt(pair.from, looks));
  } else if (pair.from == place_.node && table_.seats[pair.to].has_value()) {
    const ExamSeat& peer = *table_.seats[pair.to];
    const auto address = ParseAddress(peer.address, peer.transfers, door_->family());
    if (address.ok()) {
      TransferFrom(*address, door_->family(), key, LookAt(pair.to, looks));
    }
  }
}

template <typename Counted>
absl::StatusOr<NodeLooks> Examinee::Measure(uint32_t pass, const ExamPlan& plan,
                                            const Counted& counted) {
  NodeLooks looks;
  if (!plan.ways.empty()) {
    std::vector<uint32_t> targets;
    for (const Way& way : plan.ways) {
      if (way.from == place_.node) targets.push_back(way.to);
    }
    if (!targets.empty()) datagrams_->Send(pass, targets, plan.datagrams);
    DDPRUN_RETURN_IF_ERROR(counted());
    AwaitReady(-1, 0, MonotonicNow() + kSettling).IgnoreError();
    looks = datagrams_->Looks(pass);
  }
  for (const std::vector<Way>& round : plan.rounds) {
    ++rounds_;
    for (const Way& pair : round) Transfer(pair, &looks);
  }
  if (pass == 0) looks.work = SampleWork();
  return looks;
}

// ------------------------------------------------------------- node 0

class Leader {
 public:
  Leader(const ExamPlace& place, Meeting* meeting)
      : place_(place), meeting_(meeting), examinee_(place, meeting), began_(MonotonicNow()) {}

  absl::StatusOr<ExamVerdict> Lead();

 private:
  absl::StatusOr<ExamTable> Gather();
  std::vector<NodeFacts> Attendants(const ExamTable& table);
  void AddMissing(const ExamTable& table, std::vector<NodeFacts>* nodes) const;
  absl::Status Pass(uint32_t pass, const ExamPlan& plan);
  ExamVerdict Judge();
  absl::Status Tell(const std::string& key, const std::string& text) {
    return meeting_->Set(key, text, MonotonicNow() + kSilence);
  }
  // What each of the nodes that are still there has left under `name`.
  std::map<uint32_t, std::string> Collect(const std::function<std::string(uint32_t)>& key,
                                          absl::Duration limit);

  const ExamPlace place_;
  Meeting* meeting_;
  Examinee examinee_;
  const Instant began_;
  std::set<uint32_t> there_;  // nodes that have answered so far, without 0
  std::optional<LinkExam> exam_;
};

std::map<uint32_t, std::string> Leader::Collect(const std::function<std::string(uint32_t)>& key,
                                                absl::Duration limit) {
  const Instant deadline = MonotonicNow() + limit;
  std::map<uint32_t, std::string> texts;
  const std::set<uint32_t> expected = there_;
  for (const uint32_t node : expected) {
    const Instant patience = std::max(deadline, MonotonicNow() + kLateReading);
    absl::StatusOr<std::string> text = meeting_->Get(key(node), patience);
    if (text.ok()) {
      texts[node] = *std::move(text);
    } else {
      there_.erase(node);
    }
  }
  return texts;
}

absl::StatusOr<ExamTable> Leader::Gather() {
  ExamTable table{.token = RandomNumber() | 1};
  table.seats.resize(place_.nodes);
  table.seats[0] = examinee_.seat();
  for (uint32_t node = 1; node < place_.nodes; ++node) there_.insert(node);
  for (const auto& [node, text] : Collect([](uint32_t of) { return Key("seat", of); }, kComing)) {
    DDPRUN_ASSIGN_OR_RETURN(table.seats[node], ReadSeat(text));
  }
  return table;
}

std::vector<NodeFacts> Leader::Attendants(const ExamTable& table) {
  std::map<std::string, int> hosts;
  for (const auto& seat : table.seats) {
    if (seat.has_value()) ++hosts[seat->host];
  }
  const std::set<uint32_t> heard = examinee_.Heard();
  std::vector<NodeFacts> nodes(table.seats.size());
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    nodes[node].name = absl::StrCat("node ", node);
    nodes[node].heard = heard.count(node) > 0;
    if (!table.seats[node].has_value()) continue;
    const ExamSeat& seat = *table.seats[node];
    nodes[node].name = hosts[seat.host] == 1 ? seat.host : absl::StrCat(seat.host, "/", node);
    nodes[node].address = seat.address.empty() ? place_.master_addr : seat.address;
    nodes[node].told = true;
  }
  AddMissing(table, &nodes);
  return nodes;
}

// Those that are no part of the job, by their --node_rank where all that came have one.
void Leader::AddMissing(const ExamTable& table, std::vector<NodeFacts>* nodes) const {
  if (place_.expected <= table.seats.size()) return;
  const size_t lacking = std::min(place_.expected, kExamNodesMax) - table.seats.size();
  std::set<uint32_t> unseen;
  for (uint32_t rank = 0; rank < place_.expected; ++rank) unseen.insert(rank);
  for (const auto& seat : table.seats) {
    if (seat.has_value() && seat->claim.has_value()) unseen.erase(*seat->claim);
  }
  const bool named = unseen.size() == place_.expected - table.seats.size();
  auto rank = unseen.begin();
  for (size_t i = 0; i < lacking; ++i) {
    NodeFacts node{.missing = true};
    if (named) {
      node.name = absl::StrCat("node rank ", *rank++);
    } else {
      node.name = lacking == 1 ? "one more node" : absl::StrCat("missing node ", i + 1);
    }
    nodes->push_back(std::move(node));
  }
}

absl::Status Leader::Pass(uint32_t pass, const ExamPlan& plan) {
  DDPRUN_RETURN_IF_ERROR(Tell(Key("plan", pass), PlanJson(plan)));
  std::vector<std::optional<NodeLooks>> looks(exam_->facts().nodes.size());
  DDPRUN_ASSIGN_OR_RETURN(looks[0], examinee_.Measure(pass, plan, [&] {
    Collect([pass](uint32_t node) { return Key("sent", pass, node); }, kSendingPass);
    return Tell(Key("counted", pass), "1");
  }));
  const auto rounds = static_cast<double>(plan.rounds.size());
  for (const auto& [node, text] :
       Collect([pass](uint32_t of) { return Key("looks", pass, of); }, kAnswer + rounds * kRound)) {
    DDPRUN_ASSIGN_OR_RETURN(looks[node], ReadLooks(text, place_.nodes));
  }
  exam_->Add(looks);
  return absl::OkStatus();
}

ExamVerdict Leader::Judge() {
  const absl::Duration took = MonotonicNow() - began_;
  const NetworkFacts& facts = exam_->facts();
  const std::vector<LinkFinding> findings = DescribeTroubles(facts);
  ExamVerdict verdict{.found = !findings.empty(),
                      .text = NetworkText(facts, findings, took),
                      .json = ReportJson(facts, took)};
  for (const LinkFinding& finding : findings) {
    verdict.prevents = verdict.prevents || Prevents(finding.trouble.kind);
    absl::StrAppend(&verdict.brief, SeverityName(finding.text.severity), ": ", finding.text.what,
                    "\n");
  }
  return verdict;
}

absl::StatusOr<ExamVerdict> Leader::Lead() {
  DDPRUN_RETURN_IF_ERROR(examinee_.Open());
  DDPRUN_ASSIGN_OR_RETURN(const ExamTable table, Gather());
  exam_.emplace(Attendants(table));
  DDPRUN_RETURN_IF_ERROR(examinee_.Sit(table));
  DDPRUN_RETURN_IF_ERROR(Tell(Key("table"), TableJson(table)));
  // Who doesn't know the others yet doesn't count what they send.
  Collect([](uint32_t of) { return Key("sitting", of); }, kComing);
  for (uint32_t pass = 0;; ++pass) {
    const ExamPlan plan = exam_->Next(MonotonicNow() - began_, kLastPass);
    if (plan.over) {
      DDPRUN_RETURN_IF_ERROR(Tell(Key("plan", pass), PlanJson(plan)));
      break;
    }
    DDPRUN_RETURN_IF_ERROR(Pass(pass, plan));
  }
  ExamVerdict verdict = Judge();
  DDPRUN_RETURN_IF_ERROR(Tell(Key("verdict"), VerdictJson(verdict)));
  return verdict;
}

// ------------------------------------------------------------- the others

absl::StatusOr<ExamVerdict> Follow(const ExamPlace& place, Meeting* meeting) {
  Examinee examinee(place, meeting);
  DDPRUN_RETURN_IF_ERROR(examinee.Open());
  DDPRUN_RETURN_IF_ERROR(examinee.TakeSeat());
  const auto get = [meeting](const std::string& key) {
    return meeting->Get(key, MonotonicNow() + kSilence);
  };
  DDPRUN_ASSIGN_OR_RETURN(const std::string table_text, get(Key("table")));
  DDPRUN_ASSIGN_OR_RETURN(const ExamTable table, ReadTable(table_text));
  DDPRUN_RETURN_IF_ERROR(examinee.Sit(table));
  DDPRUN_RETURN_IF_ERROR(meeting->Set(Key("sitting", place.node), "1", MonotonicNow() + kSilence));
  for (uint32_t pass = 0;; ++pass) {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, get(Key("plan", pass)));
    DDPRUN_ASSIGN_OR_RETURN(const ExamPlan plan, ReadPlan(text, place.nodes));
    if (plan.over) break;
    const auto counted = [&]() -> absl::Status {
      DDPRUN_RETURN_IF_ERROR(
          meeting->Set(Key("sent", pass, place.node), "1", MonotonicNow() + kSilence));
      return get(Key("counted", pass)).status();
    };
    DDPRUN_ASSIGN_OR_RETURN(const NodeLooks looks, examinee.Measure(pass, plan, counted));
    DDPRUN_RETURN_IF_ERROR(
        meeting->Set(Key("looks", pass, place.node), LooksJson(looks), MonotonicNow() + kSilence));
  }
  return AwaitExam(meeting);
}

}  // namespace

absl::StatusOr<ExamVerdict> ExamineNetwork(const ExamPlace& place, Meeting* meeting) {
  if (place.nodes > kExamNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("networks of up to ", kExamNodesMax,
                                                     " nodes are tested; these are ", place.nodes,
                                                     "; test a part of them with --nnodes"));
  }
  return place.node == 0 ? Leader(place, meeting).Lead() : Follow(place, meeting);
}

absl::StatusOr<ExamVerdict> AwaitExam(Meeting* meeting) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text,
                          meeting->Get(Key("verdict"), MonotonicNow() + kSilence));
  return ReadVerdict(text);
}

}  // namespace ddprun::launcher
