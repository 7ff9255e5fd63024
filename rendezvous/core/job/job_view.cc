#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job/job.h"

// Standby texts for nodes without a rank, the view for status calls, and the check of all
// invariants.
namespace ddprun::rendezvous {
namespace {

Hindrance HindranceOf(const Node& node, const Roster& roster) {
  Hindrance hindrance{.cleaning = node.cleaning, .claim = {}, .holder = {}, .failures = {}};
  if (!roster.table().HoldsItsClaim(node)) {
    hindrance.claim = node.info.node_rank;
    const uint64_t holder = roster.table().Claimants(*node.info.node_rank).front();
    hindrance.holder = roster.table().FindByOrder(holder)->info.hostname;
  }
  return hindrance;
}

}  // namespace

void Job::SendDueStandbys() {
  if (!standby_due_.any() || phase_ == JobPhase::kEnded) return standby_due_.Clear();
  const auto listens = [](const Node& node) {
    return node.stream && !node.group_rank && !node.draining;
  };
  // If all nodes have a rank, which is usual, no text is needed.
  if (standby_due_.all() && std::none_of(roster_.nodes().begin(), roster_.nodes().end(),
                                         [&](const auto& each) { return listens(each.second); })) {
    return standby_due_.Clear();
  }
  Waiting waiting{.phase = phase_, .reason = reason_, .generation = generation_};
  waiting.candidates = roster_.candidates();
  waiting.missing = roster_.MissingText(spec().nodes_min);
  waiting.after = forming_.why();
  if (recovery_.open()) waiting.recovering = RecoveryText();
  waiting.pausing = phase_ == JobPhase::kForming && forming_.pausing(now_);
  if (round_) waiting.members = static_cast<uint32_t>(round_->members().size());
  if (phase_ == JobPhase::kRunning) {
    waiting.grows = CountNewcomers(spec(), roster_, blame_, now_).present > 0 &&
                    CanGrow(spec(), waiting.members, round_->any_succeeded());
    waiting.least_uptime = growth_.least_uptime();
    waiting.fruitless = growth_.fruitless();
  }
  const auto tell = [&](const Node& node) {
    if (!listens(node)) return;
    Hindrance hindrance = HindranceOf(node, roster_);
    if (IsLeftOut(node)) hindrance.failures = blame_.Count(node.id, now_);
    const Standby standby = StandbyFor(spec(), waiting, hindrance);
    if (node.standby == standby) return;
    roster_.Change(node, [&](Node& n) { n.TakeStandby(standby); });
    effects_.SendTo(node, standby);
  };
  if (standby_due_.all()) {
    for (const auto& [order, node] : roster_.nodes()) tell(node);
  } else {
    for (const uint64_t order : standby_due_.nodes()) {
      if (const Node* node = roster_.table().FindByOrder(order)) tell(*node);
    }
  }
  standby_due_.Clear();
}

// Whether the node is in quarantine, and no generation would begin to take it in.
bool Job::IsLeftOut(const Node& node) const {
  const bool is_full = round_ && round_->members().size() >= spec().nodes_max;
  return (is_full || spec().restart.quarantine_shrinks) && blame_.Quarantined(node.id, now_);
}

std::string Job::StateOf(const Node& node) const {
  if (!node.stream) return "unreachable";
  if (node.draining) return "draining";
  if (node.cleaning != Generation()) return "stopping";
  if (!node.group_rank && phase_ == JobPhase::kRunning && IsLeftOut(node)) return "quarantined";
  if (!node.group_rank) return node.standby && node.standby->spare ? "spare" : "joined";
  const RoundMember& member = round_->member(*node.group_rank);
  switch (member.state) {
    case RoundMember::State::kRunning:
      return member.succeeded ? "succeeded" : "running";
    case RoundMember::State::kStopping:
      return "stopping";
    case RoundMember::State::kStopped:
    case RoundMember::State::kLost:
    case RoundMember::State::kLeft:
      return "stopped";
  }
  return "unknown";
}

JobView Job::View(Instant now) const {
  JobView view;
  view.spec = spec();
  view.phase = PhaseName(phase_);
  view.reason = reason_;
  view.generation = generation_;
  view.restart_count = closing_.history().restart_count;
  view.restarts_charged = closing_.history().restarts_charged;
  view.drained = drains_.nodes();
  view.age = ledger_.Age(now);
  view.spent = ledger_.Spent(now);
  view.counted = ledger_.Counted(now);
  view.recoveries = recovery_.life();
  view.record_lost = recorder_.lost();
  if (roster_.silent() > 0) view.reason = SilenceText(now);
  if (recovery_.open()) {
    view.phase = "recovering";
    view.reason = RecoveryText();
  }
  std::vector<const Node*> shown;
  shown.reserve(roster_.nodes().size());
  for (const auto& [order, node] : roster_.nodes()) shown.push_back(&node);
  std::sort(shown.begin(), shown.end(), [](const Node* a, const Node* b) {
    return std::pair(a->group_rank.value_or(UINT32_MAX), a->order) <
           std::pair(b->group_rank.value_or(UINT32_MAX), b->order);
  });
  view.nodes.reserve(shown.size());
  for (const Node* each : shown) {
    const Node& node = *each;
    NodeView& told = view.nodes.emplace_back();
    told.node_id = node.id;
    told.info = node.info;
    told.state = StateOf(node);
    told.group_rank = node.group_rank;
    told.silent = now - node.proof;
    told.progress = node.told.progress;
    told.step_time = node.told.step_time;
    told.progress_age = now - node.told.progress_at;
    told.gpus = node.told.gpus;
    told.gpus_age = now - node.told.gpus_at;
    told.warm = node.told.warm;
    told.hold_ups = node.told.hold_ups;
    told.checkpoint_bytes = node.told.checkpoint_bytes;
    if (!node.group_rank) continue;
    told.base_rank = round_->member(*node.group_rank).placement.base_rank;
  }
  return view;
}

// "the service was started again; waiting for nodes b, c to come back".
std::string Job::RecoveryText() const {
  constexpr size_t kNodesListedMax = 8;  // a longer list isn't readable
  std::vector<std::string> nodes;
  for (const uint64_t order : recovery_.awaited()) {
    if (nodes.size() == kNodesListedMax) break;
    nodes.push_back(roster_.table().FindByOrder(order)->id.value());
  }
  const size_t more = recovery_.awaited().size() - nodes.size();
  return absl::StrCat("the service was started again; waiting for ", ListText(nodes),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"), " to come back");
}

// The text about the node that has been silent for longest.
std::string Job::SilenceText(Instant now) const {
  const Node* first = nullptr;
  for (const auto& [order, node] : roster_.nodes()) {
    if (node.silent && (first == nullptr || node.heard < first->heard)) first = &node;
  }
  const uint32_t more = roster_.silent() - 1;
  return absl::StrCat(NodeText(*first), " hasn't been heard for ",
                      DurationText(absl::Trunc(now - first->proof, absl::Seconds(1))),
                      more == 0 ? "" : absl::StrCat(", nor ", CountText(more, "other node")),
                      "; its workers may still run. ",
                      WaitText(SilenceOf(*first), spec().nodes_min, first->lease_end - now));
}

// ------------------------------------------------------------- invariants

std::string Job::BrokenInvariant() const {
  for (const std::string& broken :
       {std::string(BrokenPhase()), roster_.BrokenInvariant(), drains_.BrokenInvariant(),
        blame_.BrokenInvariant(), forming_.BrokenInvariant(now_), growth_.BrokenInvariant(now_),
        refusal_notes_.BrokenInvariant(now_), round_ ? round_->BrokenInvariant() : std::string(),
        inquiry_.BrokenInvariant(round_ ? &*round_ : nullptr), preemption_.BrokenInvariant(),
        closing_.BrokenInvariant(), cost_.BrokenInvariant(now_), recovery_.BrokenInvariant(),
        recorder_.BrokenInvariant(), farewell_.BrokenInvariant(), record_.BrokenInvariant(),
        ledger_.BrokenInvariant(now_), BrokenMembers()}) {
    if (!broken.empty()) return broken;
  }
  return "";
}

// Which part counts in which phase: O(1), so it is checked after every step in release, too.
const char* Job::BrokenPhase() const {
  const bool running = phase_ == JobPhase::kRunning;
  const bool closing = phase_ == JobPhase::kClosing;
  if ((running || closing) != round_.has_value()) return "a live generation in the wrong phase";
  if (round_ && round_->generation() != generation_) {
    return "a live generation that is not the current one";
  }
  if (closing && round_->settled() && !recovery_.open())
    return "a settled round that is not closed";
  if (round_ && round_->members().size() > spec().nodes_max) return "more nodes than the job takes";
  if (farewell_.begun() != (phase_ == JobPhase::kEnded)) return "a verdict in the wrong phase";
  if (inquiry_.open() && !running) return "a hang of workers that don't run";
  if (isolation_.open() && !running) return "a generation is kept that doesn't run";
  if (roster_.silent() > 0 && !running) return "the job waits for a silent node, and nothing runs";
  if (preemption_.agreeing() && !running) return "a stop step for workers that don't run";
  if (preemption_.committed() && running) return "workers that don't heed their stop step";
  if (!gate_.open() && !roster_.empty()) return "nodes of a job that nobody began";
  const bool probed = phase_ != JobPhase::kEnded && roster_.table().connected() > 0;
  if (probed && !probes_.ticks()) return "nodes without probes";
  if (standby_due_.any()) return "nodes that wait for news";
  return "";
}

// Consistency between the round and the roster.
std::string Job::BrokenMembers() const {
  size_t placed = 0;
  for (const uint64_t order : recovery_.awaited()) {
    const Node* node = roster_.table().FindByOrder(order);
    if (node == nullptr || node->stream) return "a node is awaited that is here, or lost";
  }
  for (const auto& [order, node] : roster_.nodes()) {
    if (node.silent && !node.group_rank) return "a node without a rank is waited for";
    if (node.group_rank) {
      ++placed;
      const bool fits = round_ && *node.group_rank < round_->members().size() &&
                        round_->member(*node.group_rank).node_order == order;
      if (!fits) return absl::StrCat(node.id.value(), ": a rank that the generation doesn't know");
    }
    const bool asked = node.cleaning != Generation() ||
                       (phase_ == JobPhase::kClosing && node.group_rank &&
                        round_->member(*node.group_rank).state == RoundMember::State::kStopping);
    if (asked && node.stop_bound.is_infinite()) return "a stop without a bound";
    if (!asked && !node.stop_bound.is_infinite()) return "a stop bound where nothing stops";
  }
  if (!round_) return "";
  for (const RoundMember& member : round_->members()) {
    if (phase_ == JobPhase::kRunning && member.state != RoundMember::State::kRunning) {
      return "a member that stops while the generation runs";
    }
    if (member.node_order == 0) continue;
    --placed;
    const Node* node = roster_.table().FindByOrder(member.node_order);
    if (node == nullptr || node->id != member.node_id) return "a member without its node";
    if (node->stream.has_value() != member.connected) return "a member's stream is miscounted";
  }
  return placed == 0 ? "" : "a node that two ranks have";
}

std::string Job::DebugString() const {
  std::string text = absl::StrCat("phase ", PhaseName(phase_), ", generation ", generation_.value(),
                                  ", candidates ", roster_.candidates(), ": ", reason_);
  for (const auto& [order, node] : roster_.nodes()) {
    absl::StrAppend(
        &text, "\n  ", order, " ", node.id.value(), " ", node.stream ? "" : "unreachable ", "rank ",
        node.group_rank ? absl::StrCat(*node.group_rank) : "-", " lease ", ToString(node.lease_end),
        " grace ", ToString(node.grace_end), " stop ", ToString(node.stop_bound));
  }
  if (!round_) return text;
  for (const RoundMember& member : round_->members()) {
    absl::StrAppend(&text, "\n  member ", member.node_id.value(), " order ", member.node_order,
                    " state ", static_cast<int>(member.state), member.settled ? " settled" : "",
                    member.succeeded ? " succeeded" : "", member.connected ? "" : " away");
  }
  return text;
}

}  // namespace ddprun::rendezvous
