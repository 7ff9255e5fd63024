#include "tools/preflight/network_check.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
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
#include "launcher/machine/host_probe.h"
#include "tools/preflight/core/link_check.h"
#include "tools/preflight/core/link_judge.h"
#include "tools/preflight/core/link_text.h"
#include "tools/preflight/datagram_exchange.h"
#include "tools/preflight/pair_transfer.h"
#include "tools/preflight/sockets.h"

namespace ddprun::launcher {
namespace {

// The kernel sends a lost SYN again after a second; a new connection is sooner.
constexpr absl::Duration kConnecting = absl::Milliseconds(250);
constexpr absl::Duration kPause = absl::Milliseconds(50);

}  // namespace

absl::Status Meeting::Connect(Instant deadline) {
  while (!client_.has_value()) {
    const Instant now = MonotonicNow();
    absl::StatusOr<TcpStoreClient> client =
        TcpStoreClient::Connect(host_, port_, std::min(deadline, now + kConnecting));
    if (client.ok()) {
      client_.emplace(*std::move(client));
      break;
    }
    if (on_trying_) on_trying_();
    if (MonotonicNow() + kPause > deadline) return client.status();
    // A refused connection is answered at once.
    AwaitReady(-1, 0, MonotonicNow() + kPause).IgnoreError();
  }
  client_->set_deadline(deadline);
  return absl::OkStatus();
}

absl::Status Meeting::Set(const std::string& key, const std::string& value, Instant deadline) {
  while (true) {
    DDPRUN_RETURN_IF_ERROR(Connect(deadline));
    absl::Status status = client_->Set(key, value);
    // Sent is not stored: only an answer says so.
    if (status.ok()) status = client_->WaitAndGet(key).status();
    if (status.ok()) return status;
    client_.reset();
    if (MonotonicNow() >= deadline) return status;
  }
}

absl::StatusOr<std::string> Meeting::Get(const std::string& key, Instant deadline) {
  while (true) {
    DDPRUN_RETURN_IF_ERROR(Connect(deadline));
    absl::StatusOr<std::string> value = client_->WaitAndGet(key);
    if (value.ok()) return value;
    client_.reset();
    if (MonotonicNow() >= deadline) return value.status();
  }
}

namespace {

constexpr int kSamples = 8;
constexpr int kSteps = 400'000;

}  // namespace

absl::Duration SampleWork() {
  absl::Duration least = absl::InfiniteDuration();
  volatile uint64_t sink = 0;  // so that the work is done
  for (int sample = 0; sample < kSamples; ++sample) {
    Rng rng(static_cast<uint64_t>(sample));
    const absl::Duration began = ThreadTime();
    uint64_t sum = 0;
    for (int i = 0; i < kSteps; ++i) sum += rng.Next();
    sink = sum;
    least = std::min(least, ThreadTime() - began);
  }
  static_cast<void>(sink);
  return least;
}

namespace {

// How long to wait until all nodes have come: their agents started them at the same moment.
constexpr absl::Duration kComing = absl::Milliseconds(2500);
// How long a pass's datagrams may take to be sent (a third of a second) and reported.
constexpr absl::Duration kSendingPass = absl::Milliseconds(2500);
// How long a round's transfers may take, and the answer after them.
constexpr absl::Duration kRound = absl::Milliseconds(1000);
constexpr absl::Duration kAnswer = absl::Milliseconds(1500);
// How long node 0 may be silent before it counts as gone.
constexpr absl::Duration kSilence = absl::Seconds(20);
// How long datagrams may be under way after the last was sent.
constexpr absl::Duration kSettling = absl::Milliseconds(40);
// No pass begins later than this.
constexpr absl::Duration kLastPass = absl::Milliseconds(3600);
// Extra time beyond a common deadline for each node that is read after a missing one.
constexpr absl::Duration kLateReading = absl::Milliseconds(50);

std::string Key(const std::string& name) { return "ddprun_preflight/" + name; }
std::string Key(const char* name, uint32_t a) { return Key(absl::StrCat(name, "/", a)); }
std::string Key(const char* name, uint32_t a, uint32_t b) {
  return Key(absl::StrCat(name, "/", a, "/", b));
}

// One node's measurements.
class Participant {
 public:
  Participant(const CheckMember& place, Meeting* meeting) : place_(place), meeting_(meeting) {}
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  ~Participant() { meeting_->set_on_trying(nullptr); }

  absl::Status Open();
  absl::Status PublishEndpoint();
  absl::Status Sit(const EndpointTable& table);
  // A pass, without the last answer. `counted` is called when its datagrams are sent, and returns
  // when everybody's are.
  template <typename Counted>
  absl::StatusOr<NodeMeasurements> Measure(uint32_t pass, const ProbePlan& plan,
                                           const Counted& counted);

  std::set<uint32_t> Heard() { return datagrams_->Heard(); }
  const ProbeEndpoint& endpoint() const { return endpoint_; }
  void SendHere();

 private:
  void Transfer(const Link& pair, NodeMeasurements* measurements);
  PeerMeasurement* MeasurementOf(uint32_t peer, NodeMeasurements* measurements);

  const CheckMember place_;
  Meeting* meeting_;
  ProbeEndpoint endpoint_;
  std::unique_ptr<DatagramExchange> datagrams_;
  std::optional<TransferServer> server_;
  EndpointTable table_;
  std::optional<SocketAddress> first_;  // node 0's datagram address, as far as it can be guessed
  uint32_t rounds_ = 0;                 // so far
};

absl::Status Participant::Open() {
  // The store's port number for UDP on node 0, so that a node that can't reach the store can be
  // heard.
  const uint16_t port = place_.node == 0 ? place_.master_port : 0;
  DDPRUN_ASSIGN_OR_RETURN(datagrams_, DatagramExchange::Open(port));
  DDPRUN_ASSIGN_OR_RETURN(BoundSocket listener, BindAny(SOCK_STREAM, 0));
  server_.emplace(std::move(listener));
  endpoint_.host = Hostname();
  endpoint_.datagrams = datagrams_->port();
  endpoint_.transfers = server_->port();
  endpoint_.claim = place_.claim;
  if (place_.node == 0) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(endpoint_.address,
                          LocalAddressToward(place_.master_addr, place_.master_port));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> masters, ResolveHost(place_.master_addr));
  const auto first = ParseAddress(masters.front(), place_.master_port, datagrams_->family());
  if (first.ok()) first_ = *first;
  meeting_->set_on_trying([this] { SendHere(); });
  return absl::OkStatus();
}

void Participant::SendHere() {
  if (first_.has_value()) datagrams_->SendHere(place_.node, *first_);
}

absl::Status Participant::PublishEndpoint() {
  return meeting_->Set(Key("seat", place_.node), EndpointJson(endpoint_),
                       MonotonicNow() + kSilence);
}

// Addresses of the others; node 0's is where the store is.
absl::Status Participant::Sit(const EndpointTable& table) {
  table_ = table;
  if (table.endpoints.size() != place_.nodes) {
    return absl::InvalidArgumentError("the check's table is of another number of nodes");
  }
  std::vector<SocketAddress> peers(table.endpoints.size());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> masters, ResolveHost(place_.master_addr));
  for (uint32_t node = 0; node < peers.size(); ++node) {
    if (!table_.endpoints[node].has_value() || node == place_.node) continue;
    ProbeEndpoint& endpoint = *table_.endpoints[node];
    if (endpoint.address.empty()) endpoint.address = masters.front();
    DDPRUN_ASSIGN_OR_RETURN(
        peers[node], ParseAddress(endpoint.address, endpoint.datagrams, datagrams_->family()));
  }
  datagrams_->Begin(place_.node, table_.token, std::move(peers));
  return absl::OkStatus();
}

PeerMeasurement* Participant::MeasurementOf(uint32_t peer, NodeMeasurements* measurements) {
  for (PeerMeasurement& measurement : measurements->peers) {
    if (measurement.peer == peer) return &measurement;
  }
  return &measurements->peers.emplace_back(PeerMeasurement{.peer = peer});
}

void Participant::Transfer(const Link& pair, NodeMeasurements* measurements) {
  const TransferKey key{.token = table_.token, .round = rounds_};
  if (pair.to == place_.node) {
    server_->TransferTo(key, MeasurementOf(pair.from, measurements));
  } else if (pair.from == place_.node && table_.endpoints[pair.to].has_value()) {
    const ProbeEndpoint& peer = *table_.endpoints[pair.to];
    const auto address = ParseAddress(peer.address, peer.transfers, server_->family());
    if (address.ok()) {
      TransferFrom(*address, server_->family(), key, MeasurementOf(pair.to, measurements));
    }
  }
}

template <typename Counted>
absl::StatusOr<NodeMeasurements> Participant::Measure(uint32_t pass, const ProbePlan& plan,
                                                      const Counted& counted) {
  NodeMeasurements measurements;
  if (!plan.links.empty()) {
    std::vector<uint32_t> targets;
    for (const Link& link : plan.links) {
      if (link.from == place_.node) targets.push_back(link.to);
    }
    if (!targets.empty()) datagrams_->Send(pass, targets, plan.datagrams);
    DDPRUN_RETURN_IF_ERROR(counted());
    AwaitReady(-1, 0, MonotonicNow() + kSettling).IgnoreError();
    measurements = datagrams_->Measurements(pass);
  }
  for (const std::vector<Link>& round : plan.rounds) {
    ++rounds_;
    for (const Link& pair : round) Transfer(pair, &measurements);
  }
  // Sampled in each pass: a slowdown of a virtual machine by its neighbors may last longer than one
  // sample.
  measurements.work = SampleWork();
  return measurements;
}

// ------------------------------------------------------------- node 0

class Leader {
 public:
  Leader(const CheckMember& place, Meeting* meeting)
      : place_(place), meeting_(meeting), participant_(place, meeting), began_(MonotonicNow()) {}

  absl::StatusOr<NetworkVerdict> Lead();

 private:
  absl::StatusOr<EndpointTable> Gather();
  std::vector<NodeFacts> Attendants(const EndpointTable& table);
  void AddMissing(const EndpointTable& table, std::vector<NodeFacts>* nodes) const;
  absl::Status Pass(uint32_t pass, const ProbePlan& plan);
  NetworkVerdict Judge();
  absl::Status Notify(const std::string& key, const std::string& text) {
    return meeting_->Set(key, text, MonotonicNow() + kSilence);
  }
  // The text of each live node under its key.
  std::map<uint32_t, std::string> Collect(const std::function<std::string(uint32_t)>& key,
                                          absl::Duration limit);

  const CheckMember place_;
  Meeting* meeting_;
  Participant participant_;
  const Instant began_;
  std::set<uint32_t> there_;  // nodes that have answered so far, without 0
  std::optional<LinkCheck> check_;
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

absl::StatusOr<EndpointTable> Leader::Gather() {
  EndpointTable table{.token = RandomNumber() | 1};
  table.endpoints.resize(place_.nodes);
  table.endpoints[0] = participant_.endpoint();
  for (uint32_t node = 1; node < place_.nodes; ++node) there_.insert(node);
  for (const auto& [node, text] : Collect([](uint32_t of) { return Key("seat", of); }, kComing)) {
    DDPRUN_ASSIGN_OR_RETURN(table.endpoints[node], ReadEndpoint(text));
  }
  return table;
}

std::vector<NodeFacts> Leader::Attendants(const EndpointTable& table) {
  std::map<std::string, int> hosts;
  for (const auto& endpoint : table.endpoints) {
    if (endpoint.has_value()) ++hosts[endpoint->host];
  }
  const std::set<uint32_t> heard = participant_.Heard();
  std::vector<NodeFacts> nodes(table.endpoints.size());
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    nodes[node].name = absl::StrCat("node ", node);
    nodes[node].heard = heard.count(node) > 0;
    if (!table.endpoints[node].has_value()) continue;
    const ProbeEndpoint& endpoint = *table.endpoints[node];
    nodes[node].name =
        hosts[endpoint.host] == 1 ? endpoint.host : absl::StrCat(endpoint.host, "/", node);
    nodes[node].address = endpoint.address.empty() ? place_.master_addr : endpoint.address;
    nodes[node].told = true;
  }
  AddMissing(table, &nodes);
  return nodes;
}

// Adds nodes that never joined the job, by their --node_rank if all that came have one.
void Leader::AddMissing(const EndpointTable& table, std::vector<NodeFacts>* nodes) const {
  if (place_.expected <= table.endpoints.size()) return;
  const size_t lacking = std::min(place_.expected, kCheckNodesMax) - table.endpoints.size();
  std::set<uint32_t> unseen;
  for (uint32_t rank = 0; rank < place_.expected; ++rank) unseen.insert(rank);
  for (const auto& endpoint : table.endpoints) {
    if (endpoint.has_value() && endpoint->claim.has_value()) unseen.erase(*endpoint->claim);
  }
  const bool named = unseen.size() == place_.expected - table.endpoints.size();
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

absl::Status Leader::Pass(uint32_t pass, const ProbePlan& plan) {
  DDPRUN_RETURN_IF_ERROR(Notify(Key("plan", pass), PlanJson(plan)));
  std::vector<std::optional<NodeMeasurements>> measurements(check_->facts().nodes.size());
  DDPRUN_ASSIGN_OR_RETURN(measurements[0], participant_.Measure(pass, plan, [&] {
    Collect([pass](uint32_t node) { return Key("sent", pass, node); }, kSendingPass);
    return Notify(Key("counted", pass), "1");
  }));
  const auto rounds = static_cast<double>(plan.rounds.size());
  for (const auto& [node, text] :
       Collect([pass](uint32_t of) { return Key("looks", pass, of); }, kAnswer + rounds * kRound)) {
    DDPRUN_ASSIGN_OR_RETURN(measurements[node], ReadMeasurements(text, place_.nodes));
  }
  check_->Add(measurements);
  return absl::OkStatus();
}

NetworkVerdict Leader::Judge() {
  const absl::Duration took = MonotonicNow() - began_;
  const NetworkFacts& facts = check_->facts();
  const std::vector<LinkFinding> findings = DescribeTroubles(facts);
  NetworkVerdict verdict{.found = !findings.empty(),
                         .text = NetworkText(facts, findings, took),
                         .json = ReportJson(facts, took)};
  for (const LinkFinding& finding : findings) {
    verdict.prevents = verdict.prevents || Prevents(finding.trouble.kind);
    absl::StrAppend(&verdict.brief, SeverityName(finding.text.severity), ": ", finding.text.what,
                    "\n");
  }
  return verdict;
}

absl::StatusOr<NetworkVerdict> Leader::Lead() {
  DDPRUN_RETURN_IF_ERROR(participant_.Open());
  DDPRUN_ASSIGN_OR_RETURN(const EndpointTable table, Gather());
  check_.emplace(Attendants(table));
  DDPRUN_RETURN_IF_ERROR(participant_.Sit(table));
  DDPRUN_RETURN_IF_ERROR(Notify(Key("table"), TableJson(table)));
  // Wait until all nodes have the table: a node without it doesn't count datagrams.
  Collect([](uint32_t of) { return Key("sitting", of); }, kComing);
  for (uint32_t pass = 0;; ++pass) {
    const ProbePlan plan = check_->Next(MonotonicNow() - began_, kLastPass);
    if (plan.over) {
      DDPRUN_RETURN_IF_ERROR(Notify(Key("plan", pass), PlanJson(plan)));
      break;
    }
    DDPRUN_RETURN_IF_ERROR(Pass(pass, plan));
  }
  NetworkVerdict verdict = Judge();
  DDPRUN_RETURN_IF_ERROR(Notify(Key("verdict"), VerdictJson(verdict)));
  return verdict;
}

// ------------------------------------------------------------- the others

absl::StatusOr<NetworkVerdict> Follow(const CheckMember& place, Meeting* meeting) {
  Participant participant(place, meeting);
  DDPRUN_RETURN_IF_ERROR(participant.Open());
  DDPRUN_RETURN_IF_ERROR(participant.PublishEndpoint());
  const auto get = [meeting](const std::string& key) {
    return meeting->Get(key, MonotonicNow() + kSilence);
  };
  DDPRUN_ASSIGN_OR_RETURN(const std::string table_text, get(Key("table")));
  DDPRUN_ASSIGN_OR_RETURN(const EndpointTable table, ReadTable(table_text));
  DDPRUN_RETURN_IF_ERROR(participant.Sit(table));
  DDPRUN_RETURN_IF_ERROR(meeting->Set(Key("sitting", place.node), "1", MonotonicNow() + kSilence));
  for (uint32_t pass = 0;; ++pass) {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, get(Key("plan", pass)));
    DDPRUN_ASSIGN_OR_RETURN(const ProbePlan plan, ReadPlan(text, place.nodes));
    if (plan.over) break;
    const auto counted = [&]() -> absl::Status {
      DDPRUN_RETURN_IF_ERROR(
          meeting->Set(Key("sent", pass, place.node), "1", MonotonicNow() + kSilence));
      return get(Key("counted", pass)).status();
    };
    DDPRUN_ASSIGN_OR_RETURN(const NodeMeasurements measurements,
                            participant.Measure(pass, plan, counted));
    DDPRUN_RETURN_IF_ERROR(meeting->Set(Key("looks", pass, place.node),
                                        MeasurementsJson(measurements), MonotonicNow() + kSilence));
  }
  return AwaitVerdict(meeting);
}

}  // namespace

absl::StatusOr<NetworkVerdict> CheckNetwork(const CheckMember& place, Meeting* meeting) {
  if (place.nodes > kCheckNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("networks of up to ", kCheckNodesMax,
                                                     " nodes are tested; these are ", place.nodes,
                                                     "; test a part of them with --nnodes"));
  }
  return place.node == 0 ? Leader(place, meeting).Lead() : Follow(place, meeting);
}

absl::StatusOr<NetworkVerdict> AwaitVerdict(Meeting* meeting) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text,
                          meeting->Get(Key("verdict"), MonotonicNow() + kSilence));
  return ReadVerdict(text);
}

}  // namespace ddprun::launcher
