#include "tests/sim/sim_node.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun::sim {

using launcher::SupervisorEffect;
using launcher::SupervisorEvent;
using rendezvous::Generation;

namespace {

// As rendezvous/client/reconnect_pauses.h has them while the service isn't missing for long.
constexpr absl::Duration kFirstPause = absl::Milliseconds(25);
constexpr absl::Duration kLongestPause = absl::Milliseconds(200);

absl::Duration UpTo(absl::Duration most, Rng* rng) {
  return most * static_cast<int64_t>(rng->Below(100)) / 100;
}

bool IsRenewal(const SupervisorEffect& effect) {
  const auto* send = std::get_if<launcher::SendMessage>(&effect);
  return send != nullptr && std::holds_alternative<rendezvous::Renewal>(send->message.body);
}

}  // namespace

SimNode::SimNode(int number, EventQueue* queue, Rng* rng, SimNetwork* network,
                 launcher::SupervisorConfig config, const WorkerHabits* habits, Callbacks callbacks)
    : number_(number),
      queue_(queue),
      rng_(rng),
      network_(network),
      config_(std::move(config)),
      habits_(habits),
      callbacks_(std::move(callbacks)),
      timer_([this] { Handle(launcher::TimerFired{}); }) {}

void SimNode::StartAgent() {
  Touch();
  // A new agent isn't there before the keeper of the last one is done, which ends its workers
  // within 65 ms.
  if (agent_runs() || live_generation()) return;
  ++epoch_;
  ++wakes_;
  config_.identity.incarnation =
      rendezvous::Incarnation((static_cast<uint64_t>(number_) + 1) * 1000 + epoch_);
  config_.identity.node.agent_pid = static_cast<uint32_t>(config_.identity.incarnation.value());
  config_.identity.node.master_port = next_port_++;
  supervisor_ = std::make_unique<launcher::Supervisor>(config_, LocalNow());
  stream_ = 0;
  frozen_ = false;
  finishing_ = false;
  signalled_ = false;
  dead_since_ = Instant::Infinite();
  next_pause_ = kFirstPause;
  join_.reset();
  last_event_.reset();
  reset_at_ = away_since_ = Instant::Infinite();
  if (callbacks_.trace) callbacks_.trace(absl::StrCat("agent of node ", number_, " starts"));
  Handle(
      launcher::EndpointFound{.node_address = config_.identity.node.hostname,
                              .store_address = absl::StrCat(config_.identity.node.hostname, ":1"),
                              .hosts_service = hosts_service_,
                              .hosts_endpoint = number_ == 0});
  network_->Connect(number_, epoch_);
}

// The stream is reset; the keeper ends the workers soon after.
void SimNode::CrashAgent() {
  if (!agent_runs()) return;
  if (callbacks_.trace) callbacks_.trace(absl::StrCat("agent of node ", number_, " is killed"));
  EndAgent();
  if (stream_ != 0 && stream_ != broken_) reset_at_ = queue_->now();
  if (stream_ != 0) network_->Break(std::exchange(stream_, 0));
}

void SimNode::LosePower() {
  if (!agent_runs()) return;
  if (callbacks_.trace) callbacks_.trace(absl::StrCat("node ", number_, " loses its power"));
  stream_ = 0;
  EndAgent();
}

void SimNode::EndAgent() {
  Touch();
  supervisor_.reset();
  dead_since_ = queue_->now();
  frozen_calls_.clear();
  frozen_ = false;
  const Generation generation = generation_;
  queue_->After(absl::Milliseconds(5 + static_cast<int64_t>(rng_->Below(60))), [this, generation] {
    if (generation_ != generation) return;
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      EndWorker(generation, rank, {.signal = SIGKILL});
    }
  });
}

void SimNode::SetFrozen(bool frozen) {
  Touch();
  if (frozen_ == frozen || !agent_runs()) return;
  frozen_ = frozen;
  if (callbacks_.trace) {
    callbacks_.trace(absl::StrCat("agent of node ", number_, frozen ? " freezes" : " thaws"));
  }
  if (frozen) return;
  thawed_at_ = queue_->now();
  ++wakes_;
  std::vector<Call> calls = std::exchange(frozen_calls_, {});
  for (Call& call : calls) call();
  ArmTimer();
}

void SimNode::SignalAgent(int signal_number) {
  Touch();
  if (!agent_runs()) return;
  signalled_ = true;
  Handle(launcher::SignalReceived{signal_number});
}

void SimNode::FailWorker(int signal_number, const std::string& message) {
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].alive) continue;
    return EndWorker(
        generation_, rank,
        {.exit_code = signal_number == 0 ? 1 : 0, .signal = signal_number, .message = message});
  }
}

void SimNode::BreakStream(absl::Duration unnoticed) {
  Touch();
  broken_ = stream_;
  if (stream_ != 0) network_->Break(stream_, unnoticed);
}

void SimNode::SayAgain() {
  if (!last_event_) return;
  rendezvous::AgentMessage again = *last_event_;
  if (stream_ != 0) network_->SendToService(stream_, std::move(again));
}

std::optional<Generation> SimNode::live_generation() const {
  for (const Worker& worker : workers_) {
    if (worker.alive) return generation_;
  }
  return std::nullopt;
}

std::string SimNode::DebugString() const {
  const std::optional<Generation> live = live_generation();
  return absl::StrCat(supervisor_ == nullptr ? absl::StrCat(id().value(), ": no agent")
                                             : supervisor_->DebugString(),
                      live ? absl::StrCat(", workers of ", live->value()) : ", no workers",
                      frozen_ ? ", frozen" : "", network_->IsCut(number_) ? ", cut" : "");
}

// ------------------------------------------------------------- the agent

Instant SimNode::LocalNow() const {
  if (!drifts_) return queue_->now();
  return Instant() + clock_at_zero_ + (queue_->now() - Instant()) * clock_permille_ / 1000;
}

Instant SimNode::Simulated(Instant local) const {
  if (!drifts_) return local + absl::Nanoseconds(2);
  const absl::Duration since = local - Instant() - clock_at_zero_;
  return Instant() + since * 1000 / clock_permille_ + absl::Nanoseconds(2);
}

// A frozen process handles what came meanwhile when it thaws, in the same order.
void SimNode::OnOpened(uint64_t epoch, uint64_t stream) {
  Touch();
  if (frozen_) {
    frozen_calls_.emplace_back([=, this] { OnOpened(epoch, stream); });
    return;
  }
  if (epoch != epoch_ || !agent_runs() || finishing_) return network_->Break(stream);
  stream_ = stream;
  welcomed_ = false;
  next_pause_ = kFirstPause;
  last_event_.reset();
  Handle(launcher::StreamOpened{});
}

void SimNode::OnMessage(uint64_t epoch, uint64_t stream, const rendezvous::ServiceMessage& message,
                        bool beside) {
  if (frozen_) {
    frozen_calls_.emplace_back(
        [this, epoch, stream, message, beside] { OnMessage(epoch, stream, message, beside); });
    return;
  }
  if (epoch != epoch_ || stream != stream_) return;
  // A service speaks over the stream first (seed 117514).
  if (!beside || welcomed_) heard_at_ = queue_->now();
  if (beside) return AnswerBeside(stream, std::get<rendezvous::Probe>(message));
  if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    Touch();
    term_ = welcome->term;
    away_since_ = Instant::Infinite();
    welcomed_ = true;
  }
  Handle(launcher::ServiceMessageReceived{message});
}

// Answers over the connection on which the probe came, without the agent's core.
void SimNode::AnswerBeside(uint64_t stream, const rendezvous::Probe& probe) {
  if (!welcomed_) return;  // the connection is opened with the Welcome's key
  network_->SendToService(stream,
                          {.run_id = join_->run_id,
                           .term = term_,
                           .node_id = join_->node_id,
                           .incarnation = join_->incarnation,
                           .stream = join_->stream,
                           .body = rendezvous::Renewal{.nonce = probe.nonce}},
                          /*beside=*/true);
  Handle(launcher::HeartbeatHeard{});
}

void SimNode::OnClosed(uint64_t epoch, uint64_t stream, absl::Status status) {
  Touch();
  if (frozen_) {
    frozen_calls_.emplace_back([=, this] { OnClosed(epoch, stream, status); });
    return;
  }
  if (epoch != epoch_ || !agent_runs()) return;
  if (stream != 0 && stream != stream_) return;
  const bool worked = stream != 0;
  if (worked) away_since_ = queue_->now();
  stream_ = 0;
  const bool retry = absl::IsUnavailable(status) && !finishing_;
  Handle(launcher::ServiceStreamClosed{std::move(status), retry});
  if (!retry) return;
  if (worked) return Reconnect(epoch, UpTo(kFirstPause, rng_));
  Reconnect(epoch, next_pause_ - UpTo(next_pause_ / 2, rng_));
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

void SimNode::Reconnect(uint64_t epoch, absl::Duration pause) {
  queue_->After(pause, [this, epoch] {
    if (epoch == epoch_ && agent_runs() && !finishing_) network_->Connect(number_, epoch);
  });
}

void SimNode::Handle(const SupervisorEvent& event) {
  if (!agent_runs()) return;
  const bool timer = std::holds_alternative<launcher::TimerFired>(event);
  if (frozen_ && timer) return;  // armed again when it thaws
  if (frozen_) {
    frozen_calls_.emplace_back([this, event] { Handle(event); });
    return;
  }
  std::vector<SupervisorEffect> effects = supervisor_->Step(LocalNow(), event);
  // An invariant that an answer to a probe breaks is still broken at the next step with other
  // effects.
  constexpr uint64_t kLook = 8;
  const bool look =
      !std::all_of(effects.begin(), effects.end(), IsRenewal) || ++steps_ % kLook == 0;
  const std::string broken = look ? supervisor_->BrokenInvariant() : std::string();
  if (!broken.empty()) callbacks_.broken(absl::StrCat("node ", number_, ": ", broken));
  for (SupervisorEffect& effect : effects) {
    Take(effect);
    if (!agent_runs()) return;
  }
  ArmTimer();
}

void SimNode::Send(rendezvous::AgentMessage&& message) {
  if (std::holds_alternative<rendezvous::Join>(message.body)) join_ = message;
  if (message.sequence > 0) last_event_ = message;
  network_->SendToService(stream_, std::move(message));
}

void SimNode::ArmTimer() {
  const Instant at = agent_runs() ? supervisor_->NextDeadline() : Instant::Infinite();
  if (!at.is_infinite()) queue_->Arm(Simulated(at), &timer_);
}

void SimNode::Take(SupervisorEffect& effect) {
  Touch();
  if (auto* send = std::get_if<launcher::SendMessage>(&effect)) {
    if (stream_ != 0) Send(std::move(send->message));
  } else if (const auto* notice = std::get_if<launcher::NotifyUser>(&effect)) {
    if (absl::StartsWith(notice->text, "lost the job")) gave_up_after_ = queue_->now() - heard_at_;
  } else if (std::holds_alternative<launcher::FinishStream>(effect)) {
    finishing_ = true;
    if (stream_ != 0) network_->Finish(stream_);
  } else if (const auto* spawn = std::get_if<launcher::SpawnGroup>(&effect)) {
    Spawn(spawn->assignment);
  } else if (const auto* signal = std::get_if<launcher::SignalGroup>(&effect)) {
    Signal(signal->generation, signal->signal);
  } else if (const auto* sweep = std::get_if<launcher::SweepGroup>(&effect)) {
    Sweep(sweep->generation);
  } else if (const auto* look = std::get_if<launcher::LookAtWorkers>(&effect)) {
    queue_->After(2 * look->sample, [this, generation = look->generation] {
      Handle(launcher::ProgressFound{generation, Findings()});
    });
  } else if (const auto* order = std::get_if<launcher::HandleHungWorkers>(&effect)) {
    HandleHung(*order);
  } else if (const auto* step = std::get_if<launcher::LookAtStopStep>(&effect)) {
    Prepare(*step);
  } else if (std::holds_alternative<launcher::CommitStopStep>(effect)) {
    Commit();
  } else if (const auto* exit = std::get_if<launcher::Exit>(&effect)) {
    const launcher::Exit done = *exit;
    if (stream_ != 0) network_->Break(std::exchange(stream_, 0));
    EndAgent();
    callbacks_.exited(number_, done);
  }
}

// ------------------------------------------------------------- the workers

void SimNode::Spawn(const rendezvous::Assignment& assignment) {
  callbacks_.spawned(number_, assignment);
  generation_ = assignment.generation;
  prepared_ = 0;
  committed_ = false;
  workers_.assign(config_.identity.node.worker_count, Worker());
  const Generation generation = generation_;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    workers_[rank].pid = 1000 + rank;
    const absl::Duration start = absl::Milliseconds(1 + static_cast<int64_t>(rng_->Below(20)));
    queue_->After(start, [this, generation, rank] {
      if (generation_ != generation || !workers_[rank].alive) return;
      Handle(launcher::WorkerStarted{generation, rank, workers_[rank].pid});
      BeginStep(generation, rank);
    });
    queue_->After(start + habits_->lifetime(), [this, generation, rank] {
      const Worker& worker = workers_[rank];
      const bool undisturbed = generation_ == generation && !worker.stopping;
      if (undisturbed && !worker.hung && !worker.held) EndWorker(generation, rank, {});
    });
  }
}

void SimNode::Signal(Generation generation, int /*signal_number*/) {
  const bool ignored = rng_->Chance(habits_->ignores_term_percent);
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    workers_[rank].stopping = true;
    if (ignored || workers_[rank].hung) continue;
    queue_->After(absl::Milliseconds(1 + static_cast<int64_t>(rng_->Below(80))),
                  [this, generation, rank] { EndWorker(generation, rank, {.signal = SIGTERM}); });
  }
}

void SimNode::Sweep(Generation generation) {
  const bool unclean = rng_->Chance(habits_->unclean_percent) && !habits_->healed;
  const absl::Duration delay =
      unclean ? absl::Seconds(20) : absl::Milliseconds(1 + static_cast<int64_t>(rng_->Below(30)));
  queue_->After(delay, [this, generation] {
    if (generation_ != generation) return;
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      EndWorker(generation, rank, {.signal = SIGKILL});
    }
    uint64_t stopped_at = 0;
    for (const Worker& worker : workers_) {
      if (worker.saves) stopped_at = std::max(stopped_at, worker.step);
    }
    // Any times: a node's report may be wrong, the service's books are right (an invariant of its
    // core).
    rendezvous::NodeTime time{
        .last = absl::Milliseconds(static_cast<int64_t>(generation.value() * 1237 % 5000)),
        .last_in = rendezvous::TimeCause::kTraining};
    time.spent[rendezvous::TimeCause::kStartUp] =
        absl::Milliseconds(static_cast<int64_t>(generation.value() * 3571 % 5000));
    Handle(launcher::GroupEmpty{generation, next_port_++, std::nullopt, stopped_at, time});
  });
}

// ------------------------------------------------------------- hangs

void SimNode::HangWorker() {
  for (Worker& worker : workers_) {
    if (!worker.alive || worker.stopping) continue;
    worker.hung = true;
    return;
  }
}

bool SimNode::hangs(Generation generation) const {
  return generation_ == generation &&
         std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.alive && worker.hung; });
}

void SimNode::BecomeSuspicious(Generation generation) {
  queue_->After(absl::Milliseconds(300 + static_cast<int64_t>(rng_->Below(1500))),
                [this, generation] {
                  if (live_generation() != generation || !callbacks_.job_hangs(generation)) return;
                  Handle(launcher::ProgressFound{generation, Findings()});
                  BecomeSuspicious(generation);
                });
}

// A worker that hangs has fallen behind by a step; the others wait for it in their next collective.
rendezvous::HangReport SimNode::Findings() const {
  rendezvous::HangReport report{.workers = {}, .sample = absl::Milliseconds(250)};
  const bool stands = callbacks_.job_hangs(generation_);
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].alive) continue;
    report.workers.push_back(
        {.local_rank = rank,
         .phase = ProgressPhase::kTrain,
         .step = workers_[rank].hung ? 7U : 8U,
         .silent = absl::Seconds(2),
         .suspect = stands,
         .activity = stands ? rendezvous::Activity::kStill : rendezvous::Activity::kActive,
         .where = "futex",
         .expired = stands});
  }
  return report;
}

void SimNode::HandleHung(const launcher::HandleHungWorkers& order) {
  for (const uint32_t rank : order.local_ranks) {
    if (!order.end || generation_ != order.generation || !workers_.at(rank).alive) continue;
    callbacks_.judged(number_, workers_[rank].hung);
    EndWorker(order.generation, rank, {.signal = SIGKILL, .message = "no progress", .hung = true});
  }
}

void SimNode::EndWorker(Generation generation, uint32_t local_rank,
                        const rendezvous::WorkerFailure& how) {
  if (generation_ != generation || !std::exchange(workers_.at(local_rank).alive, false)) return;
  launcher::WorkerEnd end{how, LocalNow()};
  end.local_rank = local_rank;
  end.pid = workers_[local_rank].pid;
  callbacks_.worker_ended(number_, generation, end.ok(), workers_[local_rank].saves);
  Handle(launcher::WorkerEnded{generation, end});
}

// ------------------------------------------------------------- stop steps

// As in docs/PROGRESS.md: a worker marks its step, then looks which step is prepared.
void SimNode::BeginStep(Generation generation, uint32_t local_rank) {
  if (generation_ != generation || !habits_->asks_for_stop_steps) return;
  Worker& worker = workers_[local_rank];
  if (!worker.alive || worker.stopping || worker.hung) return;
  if (!std::exchange(worker.held, false)) ++worker.step;
  if (prepared_ > 0 && worker.step >= prepared_) {
    worker.held = true;
    if (committed_) Save(local_rank);
    return;
  }
  queue_->After(habits_->step_time,
                [this, generation, local_rank] { BeginStep(generation, local_rank); });
}

void SimNode::Save(uint32_t local_rank) {
  workers_[local_rank].saves = true;
  callbacks_.stopped(number_, generation_, workers_[local_rank].step);
  queue_->After(absl::Milliseconds(10 + static_cast<int64_t>(rng_->Below(1500))),
                [this, generation = generation_, local_rank] {
                  if (generation_ == generation) EndWorker(generation, local_rank, {});
                });
}

void SimNode::Prepare(const launcher::LookAtStopStep& request) {
  const bool raised = request.step > prepared_;
  prepared_ = std::max(prepared_, request.step);
  for (uint32_t rank = 0; raised && rank < workers_.size(); ++rank) {
    if (workers_[rank].held && workers_[rank].step < prepared_) BeginStep(generation_, rank);
  }
  if (request.round == 0) return Handle(LookAtSteps(0));
  const absl::Duration settle = request.step > 0 ? absl::Milliseconds(10) : absl::ZeroDuration();
  queue_->After(settle, [this, generation = generation_, round = request.round, epoch = epoch_] {
    if (generation_ == generation && epoch_ == epoch) Handle(LookAtSteps(round));
  });
}

launcher::StopStepLooked SimNode::LookAtSteps(uint32_t round) const {
  launcher::StopStepLooked looked{.generation = generation_,
                                  .round = round,
                                  .look = {.heeds = habits_->asks_for_stop_steps, .below = true},
                                  .all_stopped = committed_};
  if (prepared_ > 0) looked.look.highest = prepared_ - 1;
  for (const Worker& worker : workers_) {
    if (!worker.alive) continue;
    looked.look.heeds = looked.look.heeds && worker.step > 0;
    looked.look.highest = std::max(looked.look.highest, worker.step);
    const bool is_held = worker.held && worker.step == prepared_;
    looked.look.below = looked.look.below && (worker.step < prepared_ || is_held);
    looked.all_stopped = looked.all_stopped && worker.saves;
  }
  return looked;
}

void SimNode::Commit() {
  committed_ = true;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker =
        workers_[rank];  // one that hangs sees neither the commit nor later steps
    if (worker.alive && worker.held && !worker.hung && !worker.saves) Save(rank);
  }
}

}  // namespace ddprun::sim
