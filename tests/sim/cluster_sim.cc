#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/version.h"
#include "rendezvous/core/job/trace_text.h"
#include "rendezvous/core/timing.h"

namespace ddprun::sim {

using rendezvous::AgentMessage;
using rendezvous::Assignment;
using rendezvous::CloseStream;
using rendezvous::Effect;
using rendezvous::Event;
using rendezvous::Generation;
using rendezvous::Note;
using rendezvous::ServiceMessage;
using rendezvous::StreamKey;

namespace {

constexpr absl::Duration kSafety = absl::Seconds(40);
// Of many nodes, each second of which costs as much as a minute of a few.
constexpr absl::Duration kSafetyOfMany = absl::Seconds(8);
// A formable job has formed and ended by then, and else given up: join_timeout, and twice the bound
// of an unclean stop, the service loss timeout and a worker's life.
constexpr absl::Duration kLiveness = absl::Seconds(150);
constexpr size_t kLinesKept = 400;

absl::Duration Milliseconds(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

}  // namespace

ClusterSim::ClusterSim(uint64_t seed, Sabotage sabotage, bool trace, Program program)
    : seed_(seed), sabotage_(sabotage), program_(program), trace_(trace), rng_(seed) {
  MakeJob();
  MakeService();
  blame_ = std::make_unique<BlameWatch>(
      job_.restart.restart_window > absl::ZeroDuration() ? UINT32_MAX : job_.max_restarts);
  policy_ = std::make_unique<PolicyWatch>(job_, program_ == Program::kCrashesAtStart);
  if (sabotage_ == Sabotage::kNoQuarantine) {
    job_.restart.quarantine_after = 1;
    job_.restart.quarantine_shrinks = true;
  }
  quarantine_ = std::make_unique<QuarantineWatch>(job_);
  if (sabotage_ == Sabotage::kNoQuarantine) job_.restart.quarantine_after = 0;
  if (sabotage_ == Sabotage::kLongPauses) job_.restart.backoff_max += absl::Seconds(10);
  if (sabotage_ == Sabotage::kNoBudgets) {
    uint32_t& changes = job_.restart.max_membership_changes;
    job_.max_restarts += 100;
    if (changes < 1000) changes += 100;  // most jobs have no limit
  }
  MakeNodes();
  MakePlan();
}

void ClusterSim::MakeNetwork(uint64_t nodes) {
  network_ = std::make_unique<SimNetwork>(
      &queue_, &rng_, static_cast<int>(nodes),
      SimNetwork::Ends{
          .opened =
              [this](int node, uint64_t epoch, uint64_t stream) {
                nodes_[static_cast<size_t>(node)]->OnOpened(epoch, stream);
              },
          .to_agent =
              [this](int node, uint64_t epoch, uint64_t stream, const ServiceMessage& message,
                     bool beside) {
                CheckLeader(node, stream, message);
                nodes_[static_cast<size_t>(node)]->OnMessage(epoch, stream, message, beside);
              },
          .agent_closed =
              [this](int node, uint64_t epoch, uint64_t stream, absl::Status status) {
                nodes_[static_cast<size_t>(node)]->OnClosed(epoch, stream, std::move(status));
              },
          .to_service =
              [this](size_t service, const Event& event) {
                service == leader_ ? OnServiceEvent(event) : OnFormerEvent(service, event);
              },
      });
  network_->SetSlowest(slowest_);
}

Storage ClusterSim::MakeStorage() {
  Storage storage;
  const bool sound = program_ == Program::kOutlivesService || program_ == Program::kLosesRecord;
  storage.keeps = rng_.Chance(60) || sound;
  storage.slow_percent = rng_.Chance(20) ? 10 : 0;
  if (sabotage_ == Sabotage::kConfirmAll) storage.slow_percent = 100;
  storage.fails_percent = rng_.Chance(5) && !sound ? 5 : 0;
  if (rng_.Chance(3) && !sound) storage.hangs_percent = 3;
  storage.tells_before = sabotage_ == Sabotage::kNotifyBefore;
  storage.forgets = sabotage_ == Sabotage::kForgetRecord;
  storage.keeps_the_last = sabotage_ == Sabotage::kOldRecord;
  storage.former_notices = sabotage_ == Sabotage::kFormerNotices;
  storage.believes = sabotage_ == Sabotage::kBelieveDamaged;
  return storage;
}

void ClusterSim::MakeService() {
  storage_ = MakeStorage();
  store_ = std::make_unique<SimStore>(sabotage_ == Sabotage::kNoFence);
  service_ = std::make_unique<SimService>(&queue_, &rng_, storage_, store_.get(),
                                          /*few=*/!result_.large, nullptr, HooksOfService());
}

SimService::Hooks ClusterSim::HooksOfService() {
  return SimService::Hooks{
      .stepped = [this](const Event& event,
                        const std::vector<Effect>& effects) { OnServiceStepped(event, effects); },
      .carry_out = [this](const Effect& effect,
                          Instant decided) { TakeServiceEffect(effect, decided); },
      .owed = [this](const Note& note, Instant decided) { OnNote(note, decided); },
      .died = [this] { OnServiceDied(); },
      .fenced = [this] { Break("a service is fenced that nobody has replaced"); },
      .broken = [this](const std::string& what) { Break(what); }};
}

void ClusterSim::MakeJob() {
  job_.run_id = absl::StrCat("seed", seed_);
  job_.nodes_max = static_cast<uint32_t>(1 + rng_.Below(4));
  const uint64_t large = rng_.Below(10'000);
  if (large < 100) job_.nodes_max = static_cast<uint32_t>(5 + rng_.Below(12));
  job_.nodes_min =
      rng_.Chance(50) ? job_.nodes_max : static_cast<uint32_t>(1 + rng_.Below(job_.nodes_max));
  job_.max_restarts = static_cast<uint32_t>(rng_.Below(rng_.Chance(50) ? 4 : 40));
  job_.fingerprint = "f";
  job_.join_timeout = absl::Seconds(60);
  job_.last_call_timeout = absl::Seconds(3);
  job_.lease = absl::Seconds(2);
  job_.lease_is_proof = seed_ % 2 == 0;
  job_.restart.quarantine_shrinks = seed_ / 2 % 2 == 0;
  job_.reconnect_grace = absl::Milliseconds(150);
  job_.stop_grace = absl::Seconds(2);
  // Most jobs live through the faults; some end among them.
  const bool short_life = rng_.Chance(30);
  habits_.lifetime = [this, short_life] {
    const absl::Duration own = Milliseconds(500 + rng_.Below(safety_ < kSafety ? 1000 : 8000));
    const absl::Duration left = Instant() + safety_ - queue_.now();
    return short_life || left < absl::ZeroDuration() ? own : left + own;
  };
  beside_ = rng_.Chance(30);
  between_us_ = rng_.Chance(30) ? 0 : 3000;
  slowest_ = Milliseconds(300);
  safety_ = kSafety;
  // Of many nodes one would fail to stop each time, and no generation of theirs came to an end.
  habits_.unclean_percent = rng_.Chance(10) ? std::min(10U, 50U / job_.nodes_max) : 0;
  habits_.asks_for_stop_steps = rng_.Chance(70);
  preempt_deadline_ = absl::Seconds(rng_.Chance(80) ? 8 : 1);
  faults_on_ = !rng_.Chance(10);
  pause_ms_ = rng_.Chance(30) ? 300 : 4000;
  MakeRestartRules();
  if (large >= 100 && large < 135 && program_ == Program::kTrains) return MakeLargeJob();
  if (program_ == Program::kTrains) return;
  if (program_ == Program::kLosesAll || program_ == Program::kLosesRecord) {
    faults_on_ = false;
    return;
  }
  habits_.unclean_percent = 0;
  if (program_ == Program::kOutlivesService) {
    faults_on_ = true;
    pause_ms_ = 2000;  // agents give up a service that is missing for 10 s
    return;
  }
  faults_on_ = false;
  // Without the rule only the budget ends the job, within the time that is simulated.
  job_.max_restarts = static_cast<uint32_t>(rng_.Below(job_.restart.crash_loop > 0 ? 1000 : 20));
}

// So many nodes that they are probed less often than their lease asks for (R4). What they need of
// time is probes, a thousand a second.
void ClusterSim::MakeLargeJob() {
  result_.large = true;
  job_.nodes_max =
      static_cast<uint32_t>(rng_.Chance(90) ? 90 + rng_.Below(30) : 17 + rng_.Below(184));
  job_.nodes_min = static_cast<uint32_t>(1 + rng_.Below(job_.nodes_max));
  job_.lease = Milliseconds(210);
  slowest_ = Milliseconds(20);
  between_us_ /= 100;
  safety_ = kSafetyOfMany;
  pause_ms_ = 500;
  faults_on_ = true;
  habits_.unclean_percent = 0;
}

// Half of the jobs have the defaults but for the longest pause, which liveness waits for.
void ClusterSim::MakeRestartRules() {
  rendezvous::RestartRules& rules = job_.restart;
  rules.backoff_max = Milliseconds(rng_.Below(4000));
  if (rng_.Chance(50)) return;
  rules.max_membership_changes = static_cast<uint32_t>(rng_.Below(rng_.Chance(30) ? 4 : 40));
  rules.restart_window = rng_.Chance(50) ? Milliseconds(rng_.Below(10'000)) : absl::ZeroDuration();
  rules.crash_loop = static_cast<uint32_t>(rng_.Below(6));
  rules.give_up_after = static_cast<uint32_t>(rng_.Below(rng_.Chance(50) ? 1 : 8));
  rules.quarantine_after = static_cast<uint32_t>(rng_.Below(4));
  rules.quarantine_time = Milliseconds(500 + rng_.Below(20'000));
}

void ClusterSim::MakeNodes() {
  const bool together = program_ == Program::kOutlivesService || program_ == Program::kLosesRecord;
  const uint64_t count = job_.nodes_max + (together ? 0 : rng_.Below(3));
  MakeNetwork(count);
  claims_ = rng_.Chance(20);
  const bool drift = rng_.Chance(20);  // clocks that differ by up to 5 %
  // The service is a child of the first node's agent, or elsewhere.
  const bool hosted = rng_.Chance(30) && program_ == Program::kTrains;
  for (uint64_t i = 0; i < count; ++i) {
    nodes_.push_back(std::make_unique<SimNode>(static_cast<int>(i), &queue_, &rng_, network_.get(),
                                               ConfigOf(i), &habits_, CallbacksOfNodes()));
    SimNode* node = nodes_.back().get();
    if (hosted && i == 0) node->HostService();
    if (drift) {
      node->SetClock(absl::Seconds(static_cast<int64_t>(rng_.Below(100'000))),
                     950 + static_cast<int64_t>(rng_.Below(101)));
    }
    const bool soon = together || result_.large || rng_.Chance(70);
    queue_.After(Milliseconds(rng_.Below(soon ? 500 : 15'000)), [this, i, node] {
      if (!plan_.absent.contains(static_cast<uint32_t>(i))) node->StartAgent();
    });
  }
}

launcher::SupervisorConfig ClusterSim::ConfigOf(uint64_t node) {
  launcher::SupervisorConfig config;
  config.job = job_;
  config.identity.node_id = rendezvous::NodeId(absl::StrCat("n", node));
  config.identity.node.hostname = absl::StrCat("host", node);
  config.identity.node.worker_count = static_cast<uint32_t>(1 + rng_.Below(3));
  // Some of those beyond claim what others have.
  if (claims_ && (node < job_.nodes_max || rng_.Chance(50))) {
    config.identity.node.node_rank = static_cast<uint32_t>(node % job_.nodes_max);
  }
  config.identity.token = kToken;
  config.signals.preempting = {SIGUSR2};
  config.signals.term_preempts_who_asks = true;
  config.preemption.deadline = preempt_deadline_;
  config.identity.release = "0.1.0";
  config.identity.protocol_major = kProtocolMajor;
  config.endpoint.text = "host0:29400";
  return config;
}

SimNode::Callbacks ClusterSim::CallbacksOfNodes() {
  SimNode::Callbacks callbacks{
      .worker_ended = [this](int node, Generation g, bool ok,
                             bool at_stop) { OnWorkerEnded(node, g, ok, at_stop); },
      .spawned = [this](int node, const Assignment& a) { OnSpawned(node, a); },
      .stopped =
          [this](int /*node*/, Generation g, uint64_t step) {
            const std::string broken = stop_steps_.OnStopped(g, step);
            if (!broken.empty()) Break(broken);
          },
      .exited = [this](int node, const launcher::Exit& exit) { OnExited(node, exit); },
      .job_hangs = [this](Generation generation) { return JobHangs(generation); },
      .judged =
          [this](int node, bool hung) {
            ++result_.hangs;
            if (!hung) Break(absl::StrCat("node ", node, " ends a worker that doesn't hang"));
          },
      .broken = [this](const std::string& what) { Break(what); },
      .trace = nullptr};
  if (trace_) callbacks.trace = [this](const std::string& line) { Trace(line); };
  return callbacks;
}

void ClusterSim::MakePlan() {
  if (faults_on_) {
    plan_ = DrawFaults({.nodes = static_cast<uint32_t>(nodes_.size()),
                        .until = safety_,
                        .pause_ms = pause_ms_,
                        .service_dies = service_->keeps(),
                        .only_service_dies = program_ == Program::kOutlivesService},
                       &rng_);
  }
  if (program_ == Program::kTrains && rng_.Chance(20)) {
    plan_.faults.push_back(
        {.at = Instant() + safety_, .kind = FaultKind::kKillAtVerdict, .detail = rng_.Below(4)});
  }
  if (program_ == Program::kLosesAll) {
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      plan_.faults.push_back(
          {.at = Instant() + absl::Seconds(20), .kind = FaultKind::kLosePower, .node = node});
    }
  }
  if (program_ == Program::kLosesRecord) {
    plan_.faults.push_back({.at = Instant() + absl::Seconds(5),
                            .kind = FaultKind::kDamageRecord,
                            .detail = 1 + rng_.Below(3)});
  }
  // Then a hang that nothing else ends.
  if (program_ != Program::kTrains || !rng_.Chance(30)) return;
  plan_.faults.push_back({.at = Instant() + safety_,
                          .kind = FaultKind::kHangWorker,
                          .node = static_cast<uint32_t>(rng_.Below(nodes_.size()))});
}

ClusterSim::Result ClusterSim::Run() {
  rng_ = Rng(plan_.noise);
  network_->SetCalm(plan_.calm);
  if (program_ != Program::kLosesAll && program_ != Program::kLosesRecord) KeepAgentsUp();
  queue_.At(Instant() + safety_, [this] { Heal(); });
  ScheduleFaults();
  const Instant end =
      Instant() + safety_ + kLiveness +
      (program_ == Program::kLosesAll ? rendezvous::kIsolationMax : absl::ZeroDuration());
  while (result_.broken.empty() && !Over() && queue_.RunOne(end)) {
  }
  if (result_.broken.empty() && !Over()) {
    std::vector<std::string> states;
    for (const auto& node : nodes_) states.push_back(node->DebugString());
    Break(absl::StrCat(verdict_ ? "not everyone is released after the verdict"
                                : "the job neither runs to its end nor gives up",
                       ":\n",
                       service_->up()
                           ? rendezvous::TraceText(service_->machine().View(queue_.now()))
                           : "no service",
                       "\n", absl::StrJoin(states, "\n")));
  }
  result_.stops = stop_steps_.count();
  result_.repeats = repeats_.repeats();
  result_.unheard = !verdict_;
  result_.trace_tail = absl::StrJoin(lines_, "\n");
  return result_;
}

// The job has ended, nobody is left and no worker either.
bool ClusterSim::Over() const {
  if (!ended_) return false;
  for (const auto& node : nodes_) {
    if (node->agent_runs() || node->live_generation()) return false;
  }
  return true;
}

void ClusterSim::Break(const std::string& what) {
  if (result_.broken.empty()) result_.broken = absl::StrCat(ToString(queue_.now()), " ", what);
}

void ClusterSim::KeepLine(const std::string& line) {
  lines_.push_back(absl::StrCat(ToString(queue_.now()), " ", line));
  if (lines_.size() > kLinesKept) lines_.pop_front();
}

// ------------------------------------------------------------- nodes

void ClusterSim::OnWorkerEnded(int node, Generation generation, bool ok, bool at_stop) {
  Trace("a worker of node ", node, " ends", ok ? "" : " badly");
  truth_.OnEnded(generation, ok && !at_stop);
  const auto formed = formed_.find(generation);
  if (formed != formed_.end() && truth_.succeeded(generation) == world_size_) {
    successes_.OnAllDone(generation, queue_.now());
  }
  if (!ok) FailPeers(node, generation);
}

bool ClusterSim::JobHangs(Generation generation) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& node) { return node->hangs(generation); });
}

// The collectives of the others fail within 5 to 70 ms.
void ClusterSim::FailPeers(int failed, Generation generation) {
  for (const auto& peer : nodes_) {
    if (peer->number() == failed || peer->live_generation() != generation || rng_.Chance(40))
      continue;
    SimNode* node = peer.get();
    queue_.After(Milliseconds(5 + rng_.Below(65)), [node, generation] {
      if (node->live_generation() != generation) return;
      node->FailWorker(0, "RuntimeError: Connection closed by peer");
    });
  }
}

void ClusterSim::OnSpawned(int node, const Assignment& assignment) {
  Trace("node ", node, " spawns generation ", assignment.generation.value());
  const SimNode& self = *nodes_[static_cast<size_t>(node)];
  if (self.live_generation()) Break("an agent spawns beside old workers");
  std::string broken = order_.OnSpawned(self.incarnation(), assignment.generation);
  if (broken.empty()) broken = ports_.OnSpawned(assignment);
  if (!broken.empty()) Break(broken);
  if (program_ != Program::kCrashesAtStart) return;
  const absl::Duration after = Milliseconds(50 + rng_.Below(500));
  queue_.After(after, [this, node, generation = assignment.generation] {
    SimNode& crashing = *nodes_[static_cast<size_t>(node)];
    if (crashing.live_generation() != generation) return;
    outside_kills_.OnOwnFailure(generation);
    crashing.FailWorker(0, "ValueError: bad option");
  });
}

void ClusterSim::OnExited(int node, const launcher::Exit& exit) {
  Trace("agent of node ", node, " exits with ", exit.status,
        exit.verdict ? " after a verdict" : "");
  std::string broken = verdicts_.OnExit(exit);
  if (broken.empty()) broken = CheckPatience(*nodes_[static_cast<size_t>(node)], exit);
  if (!broken.empty()) Break(broken);
  // Whose processes outlive KILL ends by itself, whatever it would be told (R3).
  const bool unclean = absl::StrContains(exit.why, "still there");
  if (owed_verdict_.contains(node) && !exit.verdict && !unclean) {
    Break(absl::StrCat("node ", node, " was there at the verdict and ends without it"));
  }
}

// R5: an agent gives its service up after a whole timeout without a word, whatever was before.
std::string ClusterSim::CheckPatience(const SimNode& node, const launcher::Exit& exit) const {
  // By its own clock, which may be 5 % too fast.
  const absl::Duration least = launcher::ServiceTimeouts().loss_without_workers / 1.06;
  const bool gives_up = absl::StartsWith(exit.why, "lost the job");
  if (!gives_up || !absl::StrContains(exit.why, "no answer within")) return "";
  if (node.gave_up_after() >= least) return "";
  return absl::StrCat("node ", node.number(), " gave its service up ",
                      absl::FormatDuration(node.gave_up_after()),
                      " after its last word: ", exit.why);
}

}  // namespace ddprun::sim
