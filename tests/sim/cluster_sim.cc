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
#include "rendezvous/core/timing.h"
#include "tests/support/trace_text.h"

// How one run is made, and when it ends. The faults are in cluster_faults.cc, the service in
// cluster_service.cc, a second service in cluster_takeover.cc, the checks in cluster_checks.cc.
//
// Goal: a run is a function of (seed, sabotage, program, plan). The same four give the same steps
// of the service, bit for bit, and a plan with fewer faults is still a run of the same job. Time is
// the EventQueue's, and every choice is a draw of rng_ or a bit of the seed.
//
// The obvious way draws the next fault when the last one has struck. A failed seed can't be shrunk
// then: without one fault, all later draws shift, and the run is about another job. So the
// constructor draws job, machines and the whole plan from the seed, and Run() restarts rng_ at
// plan.noise for what nobody chose: delays of messages, lifetimes of workers, restarts of agents.
// What is left when Shrink() takes the second of three faults away:
//
//   drawn                       from        with three faults      with two
//   nodes_max, max_restarts     the seed    3, 2                   3, 2
//   first fault                 the seed    1.2 s, n0 crashes      1.2 s, n0 crashes
//   second fault                the seed    2.9 s, n1 is cut       -
//   third fault                 the seed    4.1 s, n2 hangs        4.1 s, n2 hangs
//   delays until 2.9 s          plan.noise  5 ms, 90 ms, 1 ms, …   5 ms, 90 ms, 1 ms, …
//   delays after 2.9 s          plan.noise  30 ms, 2 ms, …         others
//
// The last line is why Shrink() tries each smaller plan with several values of `noise`.
//
// A draw that is added to a Make…() shifts all later ones: each seed becomes another history, the
// digest of DDPRUN_TRACE_DIGEST changes, and scripts for --plan, which name a seed, get another
// job. A choice that divides the seeds in half needs no draw if it is a bit of the seed, as
// lease_is_proof (bit 0) and quarantine_shrinks (bit 1) are: each mixture has a quarter of them.
//
// The course of a run with Program::kTrains and a few nodes (MakeLargeJob: 8 s instead of 40):
//
//      0 s  70 % of the agents start within 0.5 s, the others within 15 s.
//   0-40 s  A fault every 20 ms + Below(pause_ms): pause_ms is 4000 in 70 % of the seeds (2.0 s on
//           average, some 20 faults) and 300 in 30 % (0.17 s, some 230). One seed of ten has none.
//     40 s  Heal() ends what still lasts. Then, if the job still runs, a worker hangs (30 % of the
//           seeds), and the service dies while it sends the verdict (20 %, if it keeps a record).
//           Heal() is queued first, and the queue keeps the order of what is due at once.
//    190 s  safety_ + kLiveness: the job has ended, no agent and no worker runs, or Run() reports
//           a violation of liveness.
//
// Safety is checked all the time: each step of the service, each spawn and each exit of an agent
// goes to the checkers, and the first violation ends the run (Break()).
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
// For many nodes: one simulated second of 100 nodes costs as much as a minute of a few.
constexpr absl::Duration kSafetyOfMany = absl::Seconds(8);
// By then a job that can form has formed and ended, and another one has given up: 60 s of
// join_timeout, and twice the longest stop (stop_grace + kStopSlack, 7 s), the time after which an
// agent without workers gives its service up (10 s) and a worker's lifetime (8.5 s). That is 111 s;
// the rest is a margin for what began before Heal(), such as a sweep of 20 s.
constexpr absl::Duration kLiveness = absl::Seconds(150);
constexpr size_t kLinesKept = 400;

absl::Duration Milliseconds(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

}  // namespace

ClusterSim::ClusterSim(uint64_t seed, Sabotage sabotage, bool trace, Program program)
    : seed_(seed), sabotage_(sabotage), program_(program), trace_(trace), rng_(seed) {
  // Sabotage of the rules gives checkers and agents different jobs: a checker copies job_ when it
  // is made, agents bring the job_ of MakeNodes() to the service. With kNoBudgets and max_restarts
  // = 2 the agents bring 102: the service allows a third restart, which PolicyWatch refuses. With
  // kNoQuarantine the checker holds a job with a quarantine after one failure, the most sensitive
  // rule there is, against a service that has none.
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
    if (changes < 1000) changes += 100;  // most jobs have kNoLimit
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
  // With 10 % for each of 16 nodes, 81 % of the stops would have an unclean node, and hardly any
  // generation would end well. 50 / 16 = 3 % leaves 39 %.
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

// A job whose probes are limited by kProbesASecond rather than by its lease, from 52 nodes on (R4).
// 210 ms is a short lease: ProbeInterval() is 50 ms, its least. 120 nodes at 1024 probes a second
// have an interval of 117 ms and a lease of 586 ms. The simulation spends its time on the probes.
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

// Half of the jobs have the default rules. Only backoff_max is short for all: kLiveness has no room
// for pauses of 30 s.
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
  // Half of the nodes beyond nodes_max claim a rank that another node claims, too.
  if (claims_ && (node < job_.nodes_max || rng_.Chance(50))) {
    config.identity.node.node_rank = static_cast<uint32_t>(node % job_.nodes_max);
  }
  config.identity.token = kToken;
  config.signals.preempting = {SIGUSR2};
  config.signals.term_preempts_who_asks = true;
  config.preemption.deadline = preempt_deadline_;
  config.identity.node.release = kVersion;
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
  // After Heal() nothing but the hang detection ends this one.
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

// The job has ended, and no agent and no worker runs.
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

// When a worker has failed, the collectives of 60 % of the other nodes fail 5 to 70 ms later. The
// other 40 % notice nothing, as ranks outside of a collective do.
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
  // An agent with processes that outlive SIGKILL ends by itself, before any verdict (R3).
  const bool unclean = absl::StrContains(exit.why, "still there");
  if (owed_verdict_.contains(node) && !exit.verdict && !unclean) {
    Break(absl::StrCat("node ", node, " was there at the verdict and ends without it"));
  }
}

// R5: an agent gives its service up only after a whole timeout without a message, by its own clock.
// That clock may be 5 % fast (MakeNodes()): its 10 s are 9.52 s here. 10 s / 1.06 = 9.43 s leaves
// 1 % for rounding.
std::string ClusterSim::CheckPatience(const SimNode& node, const launcher::Exit& exit) const {
  const absl::Duration least = launcher::ServiceTimeouts().loss_without_workers / 1.06;
  const bool gives_up = absl::StartsWith(exit.why, "lost the job");
  if (!gives_up || !absl::StrContains(exit.why, "no answer within")) return "";
  if (node.gave_up_after() >= least) return "";
  return absl::StrCat("node ", node.number(), " gave its service up ",
                      absl::FormatDuration(node.gave_up_after()),
                      " after its last word: ", exit.why);
}

}  // namespace ddprun::sim
