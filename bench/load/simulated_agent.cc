#include "bench/load/simulated_agent.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "base/version.h"
#include "rendezvous/client/heartbeat_path.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::bench {
namespace {

using rendezvous::AgentMessage;

constexpr uint32_t kWorkers = 8;
constexpr uint64_t kAStep = (uint64_t{3} << 56U) | 1234;  // a page's word: training, step 1234
// As rendezvous/client has them.
constexpr absl::Duration kOwnPatience = absl::Milliseconds(1800);
constexpr rendezvous::ReconnectSettings kHeartbeatPauses = {.first = absl::Milliseconds(100),
                                                            .longest_again = absl::Seconds(1),
                                                            .longest = absl::Seconds(1)};

}  // namespace

rendezvous::JobSpec SpecOf(const LoadSettings& settings) {
  rendezvous::JobSpec spec;
  spec.run_id = "load";
  spec.nodes_min = settings.agents - 4;
  spec.nodes_max = settings.agents;
  spec.fingerprint = "same";
  spec.description = absl::StrCat("train.py --lr 0.1 (", settings.agents, " nodes)");
  spec.lease = settings.lease;
  return spec;
}

size_t ConnectionsOfAgent(const LoadSettings& settings) {
  const absl::Duration lease = rendezvous::LeaseOf(SpecOf(settings));
  return settings.heartbeats && rendezvous::HeartbeatPaths(lease) > 0 ? 2 : 1;
}

namespace {

launcher::AgentIdentity IdentityOf(uint32_t number) {
  const std::string host = absl::StrCat("node-", number, ".cluster");
  launcher::AgentIdentity identity;
  identity.node_id = rendezvous::NodeId(host);
  identity.incarnation = rendezvous::Incarnation(RandomNumber() | 1U);
  identity.node = {.hostname = host,
                   .agent_pid = number + 1,
                   .address = host,
                   .worker_count = kWorkers,
                   .role = "default",
                   .master_port = 29500,
                   .store_address = absl::StrCat(host, ":31000"),
                   .guards = "keeper, parent-death signal, isolation timeout"};
  identity.node.release = kVersion;
  identity.protocol_major = kProtocolMajor;
  return identity;
}

rendezvous::NodeTime TimeOf() {
  rendezvous::NodeTime time;
  time.spent[rendezvous::TimeCause::kStartUp] = absl::Seconds(9);
  time.spent[rendezvous::TimeCause::kTraining] = absl::Seconds(3600);
  time.spent[rendezvous::TimeCause::kDataWait] = absl::Seconds(12);
  time.last = absl::Milliseconds(70);
  time.last_in = rendezvous::TimeCause::kTraining;
  return time;
}

}  // namespace

SimulatedAgent::SimulatedAgent(const LinkPlace* place, const LoadSettings* settings,
                               uint32_t number, Tally* tally)
    : place_(place),
      settings_(settings),
      number_(number),
      tally_(tally),
      stream_(IdentityOf(number), SpecOf(*settings)),
      own_(place, number, {}, kOwnPatience, this),
      beside_(place, number, kHeartbeatPauses, absl::InfiniteDuration(), this) {}

void SimulatedAgent::Kill() {
  lives_ = false;
  own_.Cut();
  beside_.Cut();
}

void SimulatedAgent::Freeze() {
  lives_ = false;
  own_.Freeze();
  beside_.Freeze();
}

void SimulatedAgent::Fail() {
  rendezvous::WorkerFailure failure;
  failure.rank = number_ * kWorkers;
  failure.node_id = stream_.node_id();
  failure.hostname = stream_.node().hostname;
  failure.pid = number_ + 2;
  failure.exit_code = 1;
  failure.message = std::string(rendezvous::kTextBytesMax, 'm');
  failure.traceback = std::string(rendezvous::kTracebackBytesMax, 't');
  failure.error_file = "/tmp/torchelastic/load/attempt_0/0/error.json";
  failure.stderr_tail = std::string(rendezvous::kTextBytesMax, 's');
  failure.facts.assign(rendezvous::kFactsMax, std::string(rendezvous::kFactBytesMax, 'f'));
  failure.generation = generation_;
  Say(rendezvous::WorkerFailed{.failure = std::move(failure)});
  StopWorkers();
}

LinkBytes SimulatedAgent::bytes() const {
  const LinkBytes own = own_.bytes();
  const LinkBytes beside = beside_.bytes();
  return {.to_service = own.to_service + beside.to_service,
          .from_service = own.from_service + beside.from_service};
}

// ------------------------------------------------------------- its connections

void SimulatedAgent::OnLinkOpen(AgentLink* link) {
  if (link == &own_) {
    AgentMessage join = stream_.Open(place_->loop->Now(), state_, generation_);
    header_ = join;
    return link->Write(join);
  }
  header_.body = rendezvous::Heartbeat{.key = heartbeat_key_};
  link->Write(header_);
}

void SimulatedAgent::OnLinkMessage(AgentLink* link, rendezvous::ServiceMessage message) {
  ++tally_->messages;
  if (const auto* probe = std::get_if<rendezvous::Probe>(&message)) return OnProbe(link, *probe);
  std::visit(
      [this](const auto& said) {
        if constexpr (requires { On(said); }) On(said);
      },
      message);
}

void SimulatedAgent::OnLinkClosed(AgentLink* link) {
  if (link != &own_) return;
  stream_.Close();
  beside_.Rest();
  tally_->closed.push_back(place_->loop->Now());
}

void SimulatedAgent::OnProbe(AgentLink* link, const rendezvous::Probe& probe) {
  const Instant now = place_->loop->Now();
  // The other connection has the same probe.
  if (link == &own_) {
    if (probed_ > Instant()) tally_->probe_gaps.push_back(now - probed_);
    probed_ = now;
    AgentMessage renewal = stream_.OnProbe(probe);
    auto& body = std::get<rendezvous::Renewal>(renewal.body);
    if (state_ == rendezvous::GroupState::kRunning) {
      renewal.generation = generation_;
      body.progress.assign(kWorkers, kAStep);
      body.step_time = absl::Milliseconds(250);
      body.time = TimeOf();
    }
    return link->Write(renewal);
  }
  header_.body = rendezvous::Renewal{.nonce = probe.nonce};
  link->Write(header_);
}

// ------------------------------------------------------------- the service's messages

void SimulatedAgent::On(const rendezvous::Welcome& welcome) {
  tally_->welcomed.push_back(place_->loop->Now());
  probed_ = Instant();
  for (const AgentMessage& message : stream_.OnWelcome(tally_->welcomed.back(), welcome)) {
    own_.Write(message);
  }
  if (welcome.heartbeat_key == 0 || !place_->heartbeats) return;
  heartbeat_key_ = welcome.heartbeat_key;
  header_.term = welcome.term;
  ++tally_->heartbeats_begun;
  beside_.Begin();
}

void SimulatedAgent::On(const rendezvous::Assignment& assignment) {
  if (assignment.generation <= generation_) return;
  generation_ = assignment.generation;
  state_ = rendezvous::GroupState::kRunning;
  tally_->assigned.push_back(place_->loop->Now());
  Say(rendezvous::WorkersStarted());
}

void SimulatedAgent::On(const rendezvous::StopWorkers& stop) {
  tally_->stopped.push_back(place_->loop->Now());
  if (stop.generation == generation_ && state_ == rendezvous::GroupState::kRunning) StopWorkers();
}

void SimulatedAgent::On(const rendezvous::Verdict& /*verdict*/) {
  if (std::exchange(done_, true)) return;
  tally_->verdict.push_back(place_->loop->Now());
  beside_.Rest();
  own_.HalfClose();
}

void SimulatedAgent::StopWorkers() {
  Say(rendezvous::GroupStopped{.master_port = 29500, .time = TimeOf()});
  state_ = rendezvous::GroupState::kIdle;
}

void SimulatedAgent::Say(decltype(AgentMessage::body) body) {
  if (const auto message = stream_.Add(generation_, std::move(body))) own_.Write(*message);
}

}  // namespace ddprun::bench
