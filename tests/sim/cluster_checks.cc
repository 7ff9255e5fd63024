#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/timing.h"
#include "tests/sim/cluster_sim.h"
#include "tests/support/trace_text.h"

// Invariants of a simulated cluster, checked at each step of its service and at each note.
namespace ddprun::sim {

using rendezvous::Assignment;
using rendezvous::Effect;
using rendezvous::Event;
using rendezvous::Generation;
using rendezvous::Note;
using rendezvous::StreamKey;

namespace {

// How long after a stream's beginning its agent counts as one that would hear a verdict.
constexpr absl::Duration kHearing = absl::Seconds(1);
// Two slow writes: a record that was begun before, and the one that has the report.
constexpr absl::Duration kSlowWrites = absl::Seconds(11);
// How long a sweep may take that finds something left behind.
constexpr absl::Duration kSweep = absl::Seconds(20);

// R5: no node counts as stopped while its own message about that is under way.
std::string CheckIgnored(const Note& note) {
  if (!Is(note, "ignored") || NoteField(note, "why") != "its workers were stopped already") {
    return "";
  }
  const std::string message = NoteField(note, "message");
  if (message != "GroupStopped" && message != "WorkerFailed") return "";
  return absl::StrCat("the word of ", NoteField(note, "node"), " on its workers is ignored");
}

// How many nodes have a stream at the service, beside the one that the note names.
uint32_t ConnectedBeside(const Note& note, const rendezvous::JobView& view) {
  uint32_t count = 0;
  for (const rendezvous::NodeView& node : view.nodes) {
    if (node.state != "unreachable" && node.node_id.value() != NoteField(note, "node")) ++count;
  }
  return count;
}

}  // namespace

// Observes the nodes that an event may have changed, and every 64th time all of them.
void ClusterSim::ObserveNodes() {
  constexpr uint64_t kAll = 64;
  const bool all = ++observed_ % kAll == 0;
  for (const auto& node : nodes_) {
    const bool touched = node->TakeTouched();
    if (touched || all) Observe(*node, touched);
  }
}

void ClusterSim::Observe(const SimNode& node, bool touched) {
  const int number = node.number();
  const uint64_t stream = LiveStream(node);
  const bool reachable_anew = leases_.Observe(queue_.now(), number, stream, job_.lease);
  const bool mute_anew =
      losses_.Observe(queue_.now(), number, Mute(node), node.wakes() + network_->heals(number));
  DDPRUN_CHECK(touched || (!reachable_anew && !mute_anew),
               absl::StrCat("node ", number, " has changed, and nobody saw it"));
}

// Whether nothing that the agent sends can reach the service that has the job, or it sends nothing.
bool ClusterSim::Mute(const SimNode& node) const {
  const bool elsewhere = node.has_stream() && network_->ServiceOf(node.stream()) != leader_;
  return !node.agent_runs() || node.frozen() || network_->IsCut(node.number()) || elsewhere;
}

// A verdict that no agent hears is allowed only when the last agents have gone.
std::string ClusterSim::CheckHeard() const {
  if (verdict_) return "";
  for (const auto& node : nodes_) {
    if (LiveStream(*node) == 0) continue;
    // A service has ended this stream: the node's processes outlived SIGKILL (R3, seed 4728564).
    if (refused_.contains(StreamKey(node->stream()))) continue;
    const Instant since = std::max(leases_.SoundSince(node->number()), losses_.disturbed());
    if (since.is_infinite() || queue_.now() < since + 2 * job_.lease + kHearing) continue;
    return absl::StrCat("the job ends and ", node->id().value(),
                        ", which listens, doesn't hear how");
  }
  return "";
}

// R4, R8: successes and losses are decided within their bounds. The time that a service needs for
// that begins anew with each disturbance.
std::string ClusterSim::CheckLiveness(const ShownJob::Shown& shown) {
  const rendezvous::JobView& view = shown.view;
  absl::Duration writes = service_->slow() ? kSlowWrites : absl::ZeroDuration();
  if (habits_.unclean_percent > 0) writes += kSweep;
  absl::Duration heard = absl::ZeroDuration();  // the longest time that any member has been heard
  Instant sound = Instant();                    // since when all members have been reachable
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    const rendezvous::NodeView& each = view.nodes[i];
    if (!each.group_rank) continue;
    const Instant since = leases_.SoundSince(shown.nodes[i]->number());
    sound = std::max(sound, since);
    if (each.info.hosts_service) continue;  // it proves nothing of the network
    if (!since.is_infinite()) heard = std::max(heard, queue_.now() - since);
  }
  if (view.phase != "running") return "";
  std::string broken = successes_.OnLook(view.generation, sound, writes, queue_.now());
  if (broken.empty()) broken = CheckClosed(shown);
  uint32_t others = 0;  // nodes that could go on without the rest
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    const Instant since = leases_.SoundSince(shown.nodes[i]->number());
    const bool is_able = view.nodes[i].group_rank || view.nodes[i].state == "spare";
    if (is_able && queue_.now() >= since + job_.lease) ++others;
  }
  losses_.SawOthers(others >= job_.nodes_min, queue_.now());
  if (!broken.empty() || heard < 2 * job_.lease) return broken;
  const absl::Duration lease = Pace().lease;
  const Instant formed = service_->machine().generations().back().began;
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    const rendezvous::NodeView& each = view.nodes[i];
    if (!each.group_rank || each.state == "succeeded") continue;
    const int number = shown.nodes[i]->number();
    const std::string late = job_.lease_is_proof
                                 ? losses_.OnLook(number, lease, queue_.now())
                                 : losses_.OnSilence(number, job_, lease, formed, queue_.now());
    if (!late.empty()) return late;
  }
  return "";
}

// At least the pace that is in force.
rendezvous::ProbePace ClusterSim::Pace() const {
  return rendezvous::ProbePace(job_.lease, nodes_.size());
}

// R4: a node with a killed agent counts as lost when its reconnect grace is over.
std::string ClusterSim::CheckClosed(const ShownJob::Shown& shown) const {
  constexpr absl::Duration kJudging = absl::Milliseconds(50);
  for (size_t i = 0; i < shown.nodes.size(); ++i) {
    const rendezvous::NodeView& each = shown.view.nodes[i];
    const SimNode& node = *shown.nodes[i];
    if (!each.group_rank || node.reset_at().is_infinite() || node.pid() != each.info.agent_pid) {
      continue;
    }
    // The lease may have expired as well when the reset was seen. A service that was held up has to
    // hear once more that the agent is alive.
    const Instant disturbed =
        std::max(losses_.disturbed() + 2 * slowest_ + kJudging, network_->healed_at(node.number()));
    if (network_->IsCut(node.number()) || disturbed >= node.reset_at()) continue;
    // The agent had answered until then, and the reset has arrived.
    const Instant since = node.reset_at() + slowest_;
    if (!leases_.WasSoundAt(node.number(), node.reset_at())) continue;
    if (queue_.now() < since + job_.reconnect_grace + kJudging) continue;
    return absl::StrCat("the agent of ", each.node_id.value(),
                        " has died, and isn't lost when its grace is over");
  }
  return "";
}

// Since when only a pause before the next try and the network keep the agent away; infinite =
// something else does.
Instant ClusterSim::BackSince(const SimNode& node) const {
  const int number = node.number();
  const bool cut = network_->IsCut(number) || network_->healed_at(number) >= node.away_since();
  // The agent waits on a stream that is refused, and can't know while a record is written: at its
  // join, the agent before it, which had lost its power, still counted as live (seed 1125435).
  if (refused_.contains(StreamKey(node.stream()))) return Instant::Infinite();
  if (cut || node.away_since().is_infinite()) return Instant::Infinite();
  return std::max(
      {node.away_since(), node.thawed_at(), network_->slow_until(number), losses_.disturbed()});
}

// R4: checks a node that counts as lost.
std::string ClusterSim::CheckLost(const Note& note) const {
  const SimNode& node = *NodeCalled(rendezvous::NodeId(NoteField(note, "node")));
  const std::string why = NoteField(note, "why");
  std::string broken;
  const auto known = pids_.find(node.id().value());
  if (known == pids_.end() || known->second != node.pid()) return "";  // another agent of that node
  if (why == "lease expired") {
    uint64_t here = 0;
    for (const auto& each : nodes_) {
      const uint64_t stream = each->live_stream();
      here += stream != 0 && network_->ServiceOf(stream) == leader_ ? 1 : 0;
    }
    // The stream of a node that lost its power may seem to live on. The service counted that node
    // as lost long ago, and its pace is for the others.
    here = std::min<uint64_t>(here, service_->machine().View(queue_.now()).nodes.size() + 1);
    broken = leases_.OnLeaseExpired(queue_.now(), node.number(), Pace(),
                                    rendezvous::ProbePace(job_.lease, here * 9 / 10), slowest_,
                                    losses_.disturbed());
  } else if (why == "stream closed") {
    broken = CloseWatch::OnLost(note, BackSince(node), queue_.now(), job_, Pace().interval);
  }
  return broken.empty() ? "" : absl::StrCat(broken, "\n", rendezvous::TraceText(Effect(note)));
}

void ClusterSim::CheckPrecision(const Event& event, const std::vector<Effect>& effects) {
  const auto* received = std::get_if<rendezvous::MessageReceived>(&event);
  const bool recorded = std::holds_alternative<rendezvous::PersistDone>(event);
  // Until the first record the service can't probe; leases count from there (R4).
  if (recorded && !std::exchange(recorded_, true)) losses_.Excuse(queue_.now());
  std::string broken;
  const bool ignored = std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
    const auto* note = std::get_if<Note>(&effect);
    // A service that was started again ignores messages on streams of its former life.
    return note != nullptr && (Is(*note, "ignored") || Is(*note, "node_refused"));
  });
  if (received != nullptr && !ignored &&
      std::holds_alternative<rendezvous::GroupSucceeded>(received->message.body) &&
      received->message.generation == service_->machine().View(queue_.now()).generation) {
    done_.OnSucceeded(received->message.node_id);
  }
  for (const Effect& effect : effects) {
    const auto* note = std::get_if<Note>(&effect);
    if (note == nullptr) continue;
    if (Is(*note, "node_joined")) {
      uint32_t pid = 0;
      if (absl::SimpleAtoi(NoteField(*note, "agent_pid"), &pid)) {
        pids_[NoteField(*note, "node")] = pid;
      }
    }
    // The other nodes have their lease to come back; with many nodes kRecoveryLease, which is
    // longer (R4).
    if (Is(*note, "isolation_over")) {
      losses_.Excuse(queue_.now() +
                     std::max(rendezvous::kRecoveryLease - job_.lease, absl::ZeroDuration()));
    }
    if (Is(*note, "stall")) losses_.OnStall(MillisecondsOf(*note, "ms"), queue_.now());
    if (Is(*note, "node_left") && done_.IsDone(NoteField(*note, "node"))) growth_.OnDoneGone();
    if (broken.empty()) broken = CheckIgnored(*note);
    if (broken.empty()) broken = done_.OnNote(*note);
    if (broken.empty()) broken = isolation_.OnNote(*note);
    if (broken.empty() && !claims_)
      broken = silences_.OnNote(*note, job_,
                                ConnectedBeside(*note, service_->machine().View(queue_.now())));
    if (broken.empty()) broken = excuses_.OnNote(*note, queue_.now(), job_.lease);
    if (broken.empty() && Is(*note, "node_lost")) broken = CheckLost(*note);
  }
  if (broken.empty() && std::holds_alternative<rendezvous::TimerDue>(event)) {
    bool sound = true;
    const ShownJob::Shown& shown = shown_.Look(service_->machine(), queue_.now());
    for (size_t i = 0; i < shown.nodes.size(); ++i) {
      if (shown.view.nodes[i].group_rank) continue;
      const int number = shown.nodes[i]->number();
      sound &= queue_.now() >= leases_.SoundSince(number) + job_.lease;
    }
    broken = growth_.OnLook(shown.view, sound, queue_.now());
    if (broken.empty()) broken = CheckLiveness(shown);
  }
  if (!broken.empty()) Break(broken);
}

void ClusterSim::OnNote(const Note& note, Instant decided) {
  std::string broken = blame_->OnNote(note);
  if (broken.empty()) broken = policy_->OnNote(note, decided);
  if (broken.empty() && !forgets_drains_) broken = drains_.OnNote(note);
  quarantine_->OnNote(note, decided);
  if (broken.empty()) broken = growth_.OnNote(note, decided);
  if (broken.empty() && !claims_) broken = slots_.OnNote(note);
  if (broken.empty()) broken = outside_kills_.OnNote(note);
  if (Is(note, "verdict")) {
    result_.outcome = NoteField(note, "outcome");
    if (!verdict_) result_.rule = NoteField(note, "rule");
  }
  if (Is(note, "generation")) {
    ++result_.generations;
    uint64_t number = 0;
    if (!absl::SimpleAtoi(NoteField(note, "generation"), &number) ||
        !absl::SimpleAtoi(NoteField(note, "world"), &world_size_)) {
      broken = "a generation without numbers";
    }
    if (sabotage_ == Sabotage::kSkipGeneration && number > 1) --number;
    const Generation formed(number);
    if (broken.empty()) broken = order_.OnFormed(formed);
    if (broken.empty() && formed_.contains(formed)) {
      broken = quarantine_->OnFormed(formed_.at(formed), decided);
    }
  }
  if (!broken.empty()) Break(broken);
}

// Params: effects: those of the step that formed the generation.
void ClusterSim::CheckFormed(const std::vector<Effect>& effects) {
  std::vector<Told> assignments;
  for (const Effect& effect : effects) {
    const auto* send = std::get_if<rendezvous::Send>(&effect);
    const auto* assignment = send == nullptr ? nullptr : std::get_if<Assignment>(&*send->message);
    if (assignment == nullptr) continue;
    assignments.push_back({*assignment, NodeOf(send->stream)});
    if (sabotage_ == Sabotage::kDuplicateRank && assignment->group_rank == 1) {
      assignments.back().assignment.base_rank = 0;
    }
  }
  const Generation formed = assignments.front().assignment.generation;
  formed_[formed] = service_->machine().View(queue_.now());
  std::vector<const SimNode*> nodes;
  for (const auto& node : nodes_) nodes.push_back(node.get());
  std::string broken = CheckOneLiveGeneration(formed, nodes, lost_);
  if (broken.empty()) broken = CheckRanks(assignments);
  if (!broken.empty()) Break(broken);
  // From here on a member with workers must answer for them again.
  for (const Told& told : assignments) lost_.erase(told.node->id().value());
}

}  // namespace ddprun::sim
