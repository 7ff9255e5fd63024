#include "tests/fuzz/supervisor_check.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/core/supervisor/supervisor.h"
#include "rendezvous/wire/convert.h"
#include "tests/fuzz/input_bytes.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using rendezvous::ServiceMessage;

// More timers in a row than any agent needs to end once everything else has.
constexpr int kTimersToEnd = 1000;
constexpr int kTimersAtOnce = 8;
constexpr size_t kTextMax = 40;

const int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};

class Player {
 public:
  Player(InputBytes* bytes, SupervisorFuzzResult* result) : bytes_(*bytes), result_(*result) {
    SupervisorConfig config = Config(bytes_.Next(), bytes_.Next());
    workers_ = config.identity.node.worker_count;
    supervisor_ = std::make_unique<Supervisor>(config, now_);
  }

  // The life of one agent.
  void Play() {
    const uint8_t where = bytes_.Next();
    Step(EndpointFound{.node_address = "10.0.0.1",
                       .store_address = "10.0.0.1:7",
                       .hosts_service = where < 64,
                       .hosts_endpoint = where < 96,
                       .is_strange = where % 4 == 3,
                       .is_loopback = where % 8 == 0});
    while (!bytes_.empty() && !exited_ && result_.problem.empty()) PlayOne();
    EndAll();
  }

 private:
  // The agent's workers: `is_there` from their start until the group is empty.
  struct Group {
    Generation generation;
    bool is_there = false;
    bool swept = false;
    std::vector<bool> ended;
    std::set<uint32_t> can_rejoin;
    std::set<uint32_t> let_go;
    std::set<uint32_t> spared;  // by the sweep; then: kept
  };

  static SupervisorConfig Config(uint8_t shape, uint8_t options) {
    SupervisorConfig config;
    config.job.run_id = "job";
    config.job.nodes_max = 1 + shape / 64;
    config.job.max_restarts = 3;
    config.job.stop_grace = absl::Seconds(3);
    config.job.join_timeout = absl::Seconds(60);
    config.identity.node_id = rendezvous::NodeId("a");
    config.identity.incarnation = rendezvous::Incarnation(1);
    config.identity.protocol_major = 1;
    config.identity.node.hostname = "host-a";
    config.identity.node.worker_count = 1 + shape % 3;
    config.endpoint = {.text = "host0:29400", .hosts_by_address = shape % 8 == 0};
    config.restart_stopped = options % 2 == 0;
    config.signals.term_preempts_who_asks = options / 2 % 2 == 0;
    if (options / 4 % 2 == 0) config.signals.preempting = {SIGUSR1};
    if (options / 8 % 4 == 0) config.preemption.after = absl::Seconds(40);
    if (options / 32 % 2 == 0) config.exit_barrier.timeout = absl::Seconds(5);
    config.ending.with_first_cause = options / 64 % 2 == 0;
    return config;
  }

  void PlayOne() {
    switch (bytes_.Below(20)) {
      case 0:
        return open_ ? CloseStream(bytes_.Chance(230)) : OpenStream();
      case 1:
        if (!open_) OpenStream();
        return Hear(rendezvous::Welcome{.term = rendezvous::Term(bytes_.Around(9)),
                                        .release = "x",
                                        .lease = absl::Seconds(5),
                                        .processed_sequence = bytes_.Around(last_sequence_)});
      case 2:
      case 3:
        return HearOfRounds();
      case 4:
        return HearRare();
      case 5:
      case 6:
        return Step(WorkerStarted{AboutGeneration(), AboutRank(), bytes_.Next() + 1U});
      case 7:
      case 8:
        return EndWorker(/*ok=*/true);
      case 9:
        return EndWorker(/*ok=*/false);
      case 10:
        return FindProgress();
      case 11:
        return Empty();
      case 12:
        now_ = now_ + absl::Milliseconds(bytes_.Next() * 16);
        return Step(TimerFired{});
      case 13:
        return AdvanceToDeadline();
      case 14:
        return bytes_.Chance(60) ? Step(SignalReceived{kSignals[bytes_.Below(6)]}) : OpenStream();
      case 15:
      case 16:
        return SayThatItCanRejoin();
      case 17:
      case 18:
        return LetGo();
      default:
        return PlayRare();
    }
  }

  void PlayRare() {
    switch (bytes_.Below(8)) {
      case 0:
        if (keeper_died_) return;
        keeper_died_ = true;
        group_.is_there = false;
        group_.spared.clear();
        return Step(KeeperLost{"killed by SIGKILL"});
      case 1:
        return Step(ServiceExited{"was killed by SIGKILL"});
      default:
        return Step(HeartbeatHeard{});
    }
  }

  // ------------------------------------------------------------- the service

  void OpenStream() {
    if (open_ || !may_open_) return;
    open_ = true;
    welcomed_ = false;
    sent_on_stream_ = 0;
    Step(StreamOpened{});
  }

  void CloseStream(bool will_retry) {
    if (!open_) return;
    open_ = false;
    may_open_ = may_open_ && will_retry;
    Step(ServiceStreamClosed{absl::UnavailableError("reset"), may_open_});
  }

  // What the wire lets through, and only that.
  void Hear(const ServiceMessage& message) {
    if (!open_) return;
    const auto heard = rendezvous::FromProto(rendezvous::ToProto(message));
    if (!heard.ok()) return;
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(&*heard)) {
      welcomed_ = true;
      last_sequence_ = std::max(last_sequence_, welcome->processed_sequence);
    }
    if (const auto* probe = std::get_if<rendezvous::Probe>(&*heard)) {
      last_sequence_ = std::max(last_sequence_, probe->processed_sequence);
    }
    if (std::holds_alternative<rendezvous::Verdict>(*heard)) ++result_.verdicts;
    Step(ServiceMessageReceived{*heard});
  }

  void HearOfRounds() {
    switch (bytes_.Below(6)) {
      case 0:
        return Hear(rendezvous::Probe{.nonce = bytes_.Next() + 1U,
                                      .processed_sequence = bytes_.Around(last_sequence_),
                                      .lease = absl::Seconds(bytes_.Next())});
      case 1:
        return Hear(rendezvous::StopWorkers{AboutGeneration(), Text()});
      case 2:
        return Hear(rendezvous::Standby{.reason = "waits" + Text(),
                                        .spare = bytes_.Chance(100),
                                        .nodes_present = bytes_.Next(),
                                        .nodes_wanted = bytes_.Next()});
      default:
        return Hear(NextAssignment());
    }
  }

  rendezvous::Assignment NextAssignment() {
    rendezvous::Assignment assignment;
    assignment.generation = Generation(bytes_.Around(group_.generation.value() + 1));
    assignment.group_rank = static_cast<uint32_t>(bytes_.Below(2));
    assignment.group_world_size = 2;
    assignment.world_size = 2 * workers_;
    assignment.base_rank = assignment.group_rank * workers_;
    assignment.base_role_rank = assignment.base_rank;
    assignment.role_world_size = assignment.world_size;
    assignment.master_addr = "host0";
    assignment.master_port = 29500;
    assignment.restart_count = bytes_.Next() % 4U;
    assignment.reason = Text();
    assignment.redone_to = bytes_.Next();
    return assignment;
  }

  void HearRare() {
    switch (bytes_.Below(7)) {
      case 0:
        return Hear(
            rendezvous::Verdict{.outcome = static_cast<rendezvous::Outcome>(bytes_.Below(5)),
                                .reason = Text(),
                                .failures = {Failure()},
                                .first_causes = static_cast<uint32_t>(bytes_.Below(2)),
                                .generation = AboutGeneration()});
      case 1:
        return Hear(rendezvous::ReportProgress{.generation = AboutGeneration(),
                                               .sample = absl::Milliseconds(300)});
      case 2:
        return Hear(rendezvous::HungWorkers{.generation = AboutGeneration(),
                                            .local_ranks = {AboutRank(), bytes_.Next()},
                                            .reason = Text()});
      case 3:
      case 4:
        return Hear(rendezvous::PrepareStop{.generation = AboutGeneration(),
                                            .round = bytes_.Next() % 4U + 1,
                                            .step = bytes_.Next()});
      case 5:
        return Hear(rendezvous::CommitStop{.generation = AboutGeneration(),
                                           .step = bytes_.Next() + 1U,
                                           .within = absl::Milliseconds(bytes_.Next() * 64),
                                           .reason = Text()});
      default:
        return Hear(rendezvous::Drain{Text()});
    }
  }

  rendezvous::WorkerFailure Failure() {
    rendezvous::WorkerFailure failure;
    failure.rank = bytes_.Next();
    failure.node_id = rendezvous::NodeId("b");
    failure.hostname = "host-b";
    failure.exit_code = bytes_.Next();
    failure.signal = static_cast<int>(bytes_.Below(20));
    failure.message = Text();
    return failure;
  }

  // ------------------------------------------------------------- the workers

  Generation AboutGeneration() { return Generation(bytes_.Around(group_.generation.value())); }
  uint32_t AboutRank() {
    return bytes_.Chance(250) ? static_cast<uint32_t>(bytes_.Below(workers_)) : bytes_.Next();
  }
  std::string Text() { return bytes_.Text(bytes_.Below(4) == 0 ? bytes_.Below(kTextMax) : 0); }

  void EndWorker(bool ok) {
    WorkerEnded event{.generation = AboutGeneration()};
    event.end.local_rank = AboutRank();
    event.end.pid = 100;
    event.end.seen = now_ - absl::Milliseconds(bytes_.Chance(40) ? bytes_.Next() : 0);
    if (!ok) {
      const uint8_t how = bytes_.Next();
      event.end.exit_code = how % 4 == 0 ? 0 : how;
      event.end.signal = how % 4 == 0 ? how / 4 + 1 : 0;
      event.end.hung = how > 220;
      event.end.preflight = how < 20;
      event.end.message.assign(bytes_.Below(3) * 3000, bytes_.Chance(100) ? '\xC3' : 'x');
      event.end.stderr_tail = bytes_.Text(bytes_.Below(kTextMax));
      event.end.facts.assign(bytes_.Below(12), std::string(bytes_.Below(3) * 300, 'f'));
      if (how == 12) event.end.start_error = "execve: No such file";
    }
    if (event.generation == group_.generation && event.end.local_rank < group_.ended.size()) {
      group_.ended[event.end.local_rank] = true;
      group_.spared.erase(event.end.local_rank);
    }
    Step(event);
  }

  void SayThatItCanRejoin() {
    const WorkerCanRejoin event{AboutGeneration(), AboutRank(), bytes_.Chance(230),
                                bytes_.Chance(60)};
    if (event.generation == group_.generation && event.can) {
      group_.can_rejoin.insert(event.local_rank);
    }
    Step(event);
  }

  void LetGo() {
    const WorkerLetGo event{AboutGeneration(), AboutRank()};
    if (event.generation == group_.generation) group_.let_go.insert(event.local_rank);
    Step(event);
  }

  void FindProgress() {
    switch (bytes_.Below(4)) {
      case 0:
        return Step(WorkerSuspended{.generation = AboutGeneration(),
                                    .local_rank = AboutRank(),
                                    .pid = 100,
                                    .signal = SIGSTOP});
      case 1: {
        ProgressFound found{.generation = AboutGeneration(),
                            .report = {.workers = {}, .sample = absl::Milliseconds(250)}};
        found.report.workers.push_back({.local_rank = AboutRank(),
                                        .phase = ProgressPhase::kTrain,
                                        .step = bytes_.Next(),
                                        .silent = absl::Seconds(bytes_.Next()),
                                        .suspect = bytes_.Chance(128)});
        return Step(found);
      }
      default:
        return Step(StopStepLooked{.generation = AboutGeneration(),
                                   .round = bytes_.Next() % 4U,
                                   .look = {.heeds = bytes_.Chance(200),
                                            .below = bytes_.Chance(200),
                                            .highest = bytes_.Next(),
                                            .step_time = absl::Milliseconds(bytes_.Next())},
                                   .all_stopped = bytes_.Chance(128)});
    }
  }

  // The end of a group that is swept, or of one that isn't: the agent must not believe the latter.
  void Empty() {
    GroupEmpty empty{.generation = AboutGeneration(),
                     .master_port = bytes_.Next() * 256U,
                     .stopped_at = bytes_.Chance(60) ? 7U : 0U};
    if (bytes_.Chance(128)) empty.step = bytes_.Next();
    const bool is_it = empty.generation == group_.generation && group_.swept;
    if (is_it && group_.is_there) {
      const bool all =
          std::all_of(group_.ended.begin(), group_.ended.end(), [](bool e) { return e; });
      result_.done += all ? 1 : 0;
      group_.is_there = false;
    }
    Step(empty);
  }

  void AdvanceToDeadline() {
    const Instant next = supervisor_->NextDeadline();
    if (next.is_infinite()) return;
    now_ = std::max(now_, next);
    // What is due at one time may be done one after the other.
    for (int i = 0; i < kTimersAtOnce && supervisor_->NextDeadline() <= now_; ++i) {
      Step(TimerFired{});
    }
    if (supervisor_->NextDeadline() <= now_) {
      Fail("a timer fires for nothing, again and again: " + supervisor_->DebugString());
    }
  }

  // Ends everything around the agent, as a shell sees it: so must the agent end.
  void EndAll() {
    if (!exited_) Step(SignalReceived{SIGTERM});
    for (int i = 0; i < kTimersToEnd && !exited_ && result_.problem.empty(); ++i) {
      if (finishing_) CloseStream(/*will_retry=*/false);
      if (group_.is_there && group_.swept) {
        group_.is_there = false;
        Step(GroupEmpty{.generation = group_.generation});
        continue;
      }
      if (supervisor_->NextDeadline().is_infinite()) CloseStream(/*will_retry=*/false);
      AdvanceToDeadline();
    }
    if (!exited_) Fail("an agent that was asked to end doesn't: " + supervisor_->DebugString());
  }

  // ------------------------------------------------------------- what comes of it

  void Step(const SupervisorEvent& event) {
    if (!result_.problem.empty()) return;
    const bool had_exited = exited_;
    const std::vector<SupervisorEffect> effects = supervisor_->Step(now_, event);
    if (had_exited && !effects.empty()) return Fail("an agent that has ended goes on");
    for (const SupervisorEffect& effect : effects) {
      if (exited_) return Fail("something comes after the end");
      std::visit([this](const auto& e) { Take(e); }, effect);
    }
    if (const std::string broken = supervisor_->BrokenInvariant(); !broken.empty()) Fail(broken);
    (void)supervisor_->DebugString();
    (void)supervisor_->MissingService(now_);
  }

  void Fail(const std::string& what) {
    if (result_.problem.empty()) result_.problem = what;
  }

  void Take(const SendMessage& effect) {
    if (!open_) return Fail("something is sent without a stream");
    const rendezvous::AgentMessage& message = effect.message;
    const bool is_join = std::holds_alternative<rendezvous::Join>(message.body);
    if (is_join != (sent_on_stream_ == 0)) return Fail("the first message of a stream is the Join");
    ++sent_on_stream_;
    const bool is_event = message.sequence != 0;
    if (is_event && !welcomed_) return Fail("an event is sent before the Welcome");
    const rendezvous::v1::AgentMessage proto = rendezvous::ToProto(message);
    const auto taken = rendezvous::FromProto(proto);
    if (!taken.ok()) return Fail(absl::StrCat("it is refused: ", taken.status().message()));
    if (!is_event) return;
    if (message.sequence - 1 > last_sequence_) return Fail("an event is left out");
    last_sequence_ = std::max(last_sequence_, message.sequence);
  }

  void Take(const FinishStream& /*effect*/) {
    finishing_ = true;
    may_open_ = false;
  }

  void Take(const SpawnGroup& effect) {
    if (group_.is_there) return Fail("workers are started beside those of another generation");
    if (effect.assignment.generation <= group_.generation) return Fail("a generation comes again");
    if (keeper_died_) return Fail("workers are started without a keeper");
    const std::set<uint32_t> kept(effect.kept.begin(), effect.kept.end());
    if (kept != group_.spared) return Fail("workers are started beside those that are kept");
    group_ = {.generation = effect.assignment.generation,
              .is_there = true,
              .swept = false,
              .ended = std::vector<bool>(workers_),
              .can_rejoin = kept};
    ++result_.spawned;
    result_.kept += kept.size();
  }

  void Take(const SignalGroup& effect) { ExpectGroup(effect.generation, "signalled"); }
  void Take(const LookAtWorkers& effect) { ExpectGroup(effect.generation, "looked at"); }
  void Take(const LookAtStopStep& effect) { ExpectGroup(effect.generation, "held"); }
  void Take(const CommitStopStep& effect) { ExpectGroup(effect.generation, "let go"); }
  void Take(const HandleHungWorkers& effect) { ExpectGroup(effect.generation, "ended"); }
  void Take(const SweepGroup& effect) {
    const std::set<uint32_t> spared(effect.spared.begin(), effect.spared.end());
    const std::set<uint32_t> kept = std::exchange(group_.spared, spared);
    // Once for all, and once more for those that were kept.
    if (!group_.is_there && !kept.empty()) group_.is_there = true;
    ExpectGroup(effect.generation, "swept");
    if (std::exchange(group_.swept, true) && kept.empty()) Fail("workers are swept twice");
    for (const uint32_t local_rank : spared) {
      if (!group_.can_rejoin.contains(local_rank) || !group_.let_go.contains(local_rank) ||
          group_.ended.at(local_rank)) {
        Fail("a worker is spared that has not let go");
      }
    }
  }
  void ExpectGroup(Generation generation, const char* what) {
    if (!group_.is_there || generation != group_.generation) {
      Fail(absl::StrCat("workers are ", what, " that aren't there"));
    }
  }

  void Take(const EndGeneration& effect) {
    if (effect.generation > group_.generation) return Fail("stores end that never were");
    if (effect.generation <= stores_ended_) return Fail("stores end twice");
    stores_ended_ = effect.generation;
  }
  void Take(const NotifyUser& effect) {
    if (effect.text.empty()) Fail("the user is told nothing");
  }
  void Take(const Record& /*effect*/) {}
  void Take(const Exit& effect) {
    exited_ = true;
    if (effect.status < 0 || effect.status > 255) Fail("no exit status");
    if (group_.is_there && !group_.swept) Fail("an agent ends before its workers");
    if (!group_.is_there && !group_.spared.empty())
      Fail("an agent ends before the workers that it kept");
  }

  InputBytes& bytes_;
  SupervisorFuzzResult& result_;
  std::unique_ptr<Supervisor> supervisor_;
  Instant now_;
  uint32_t workers_ = 1;
  bool open_ = false;
  bool welcomed_ = false;
  bool may_open_ = true;
  bool finishing_ = false;
  uint64_t sent_on_stream_ = 0;
  uint64_t last_sequence_ = 0;  // sent, or confirmed as processed
  Group group_;
  Generation stores_ended_;
  bool keeper_died_ = false;
  bool exited_ = false;
};

}  // namespace

SupervisorFuzzResult FuzzSupervisor(const uint8_t* data, size_t size) {
  InputBytes bytes(data, size);
  SupervisorFuzzResult result;
  do {
    Player(&bytes, &result).Play();
  } while (!bytes.empty() && result.problem.empty());
  return result;
}

}  // namespace ddprun::launcher
