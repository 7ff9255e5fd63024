#include "tests/sim/checkers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/core/timing.h"

namespace ddprun::sim {

using rendezvous::Assignment;
using rendezvous::Generation;

namespace {

// A pause this short may become none by its jitter.
constexpr absl::Duration kShortPause = absl::Milliseconds(10);

}  // namespace

const std::string& NoteField(const rendezvous::Note& note, absl::string_view key) {
  static const std::string* const kNone = new std::string();
  for (const auto& [name, value] : note.fields) {
    if (name == key) return value;
  }
  return *kNone;
}

absl::Duration MillisecondsOf(const rendezvous::Note& note, absl::string_view key) {
  int64_t ms = 0;
  return absl::SimpleAtoi(NoteField(note, key), &ms) ? absl::Milliseconds(ms)
                                                     : absl::InfiniteDuration();
}

std::vector<std::string> NodesOf(const rendezvous::Note& formed) {
  std::vector<std::string> nodes;
  for (absl::string_view word : absl::StrSplit(NoteField(formed, "ranks"), ' ')) {
    nodes.emplace_back(word.substr(0, word.find('=')));
  }
  return nodes;
}

std::string CheckRanks(const std::vector<Told>& told) {
  std::vector<const Told*> order;
  for (const Told& each : told) order.push_back(&each);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->assignment.group_rank < b->assignment.group_rank;
  });
  const Assignment& first = order.front()->assignment;
  uint32_t next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Assignment& mine = order[i]->assignment;
    if (mine.group_rank != i) return absl::StrCat("group rank ", i, " is not there once");
    if (mine.base_rank != next) return absl::StrCat("base rank of ", i, " is ", mine.base_rank);
    next += order[i]->node->info().worker_count;
    if (mine.generation != first.generation || mine.world_size != first.world_size ||
        mine.group_world_size != order.size() || mine.restart_count != first.restart_count ||
        mine.master_addr != first.master_addr || mine.master_port != first.master_port) {
      return absl::StrCat("nodes of one generation don't agree at group rank ", i);
    }
  }
  if (next != first.world_size) return "the world is not the sum of its nodes";
  if (first.master_port == 0) return "no master port";
  const std::string& master = order.front()->node->info().hostname;
  if (first.master_addr != master) return "the master is not rank 0's node";
  return "";
}

std::string GenerationOrder::OnFormed(Generation generation) {
  if (generation != last_.Next()) {
    return absl::StrCat("generation ", generation.value(), " follows ", last_.value());
  }
  last_ = generation;
  return "";
}

std::string GenerationOrder::OnSpawned(rendezvous::Incarnation incarnation, Generation generation) {
  Generation& last = spawned_[incarnation];
  if (generation <= last) {
    return absl::StrCat("an agent goes back from generation ", last.value(), " to ",
                        generation.value());
  }
  if (generation > last_) return "an agent starts a generation that was never formed";
  last = generation;
  return "";
}

std::string CheckOneLiveGeneration(Generation formed, const std::vector<const SimNode*>& nodes,
                                   const std::set<std::string>& lost_node_ids) {
  for (const SimNode* node : nodes) {
    const std::optional<Generation> live = node->live_generation();
    if (!live || *live >= formed || lost_node_ids.contains(node->id().value())) continue;
    return absl::StrCat("generation ", formed.value(), " forms while workers of ", live->value(),
                        " run on ", node->id().value());
  }
  return "";
}

std::string CheckJoinAnswered(rendezvous::StreamKey stream,
                              const std::vector<rendezvous::Effect>& effects) {
  for (const rendezvous::Effect& effect : effects) {
    const auto* send = std::get_if<rendezvous::Send>(&effect);
    if (send != nullptr && send->stream == stream) {
      return std::holds_alternative<rendezvous::Welcome>(*send->message)
                 ? ""
                 : "the first answer is no Welcome";
    }
    const auto* close = std::get_if<rendezvous::CloseStream>(&effect);
    if (close != nullptr && close->stream == stream) {
      return close->status.message().empty() && !close->status.ok() ? "a refusal without words"
                                                                    : "";
    }
  }
  return "a Join without an answer";
}

std::string BlameWatch::OnNote(const rendezvous::Note& note) {
  if (Is(note, "generation")) {
    any_gone_ = false;
    const std::vector<std::string> nodes = NodesOf(note);
    members_ = {nodes.begin(), nodes.end()};
  } else if (Is(note, "node_lost") || Is(note, "node_left")) {
    const bool done = absl::StartsWith(NoteField(note, "why"), "done, ");  // not lost
    any_gone_ |= members_.contains(NoteField(note, "node")) && !done;
  } else if (Is(note, "round_closed")) {
    const bool charged = NoteField(note, "blame") == "worker";
    if (charged && any_gone_) return "a restart is charged though a node was lost";
    uint32_t count = 0;
    if (!absl::SimpleAtoi(NoteField(note, "restart_count"), &count)) return "no restart_count";
    if (count > max_restarts_) return "more restarts than allowed";
    if (count < restarts_ || count > restarts_ + 1) return "the restart count jumps";
    if (count != restarts_ && !charged) return "a restart is charged without blame";
    restarts_ = count;
  }
  return "";
}

std::string PolicyWatch::OnNote(const rendezvous::Note& note, Instant now) {
  if (!ending_rule_.empty() && Is(note, "generation")) return "a generation after the end";
  if (Is(note, "verdict")) {
    const std::string expected = std::exchange(ending_rule_, "");
    if (!expected.empty() && NoteField(note, "rule") != expected)
      return "a verdict by another rule";
  } else if (Is(note, "generation")) {
    if (now < not_before_) return "a generation within a pause";
    formed_ = now;
  } else if (Is(note, "round_closing")) {
    uptime_ = now - formed_;
  } else if (Is(note, "round_closed")) {
    return OnClosed(note, now);
  }
  return "";
}

std::string PolicyWatch::OnClosed(const rendezvous::Note& note, Instant now) {
  const rendezvous::RestartRules& rules = job_.restart;
  const std::string rule = NoteField(note, "rule");
  uint64_t pause_ms = 0;
  const bool pauses = absl::SimpleAtoi(NoteField(note, "pause_ms"), &pause_ms);
  if (pauses != (rule == "backoff")) return absl::StrCat("a pause by the rule ", rule);
  const absl::Duration pause = absl::Milliseconds(static_cast<int64_t>(pause_ms));
  if (pause > rules.backoff_max) return "a pause that is too long";
  not_before_ = now + pause;
  const bool window = rules.restart_window > absl::ZeroDuration();
  if (window && uptime_ >= rules.restart_window) charged_ = 0;
  if (uptime_ >= rendezvous::kProgressUptime) changes_ = 0;
  if (rule == "growth") return "";
  if (rule == "membership_change") {
    if (++changes_ > rules.max_membership_changes) return "more changes than allowed";
    return "";
  }
  if (rule == "worker_failure" || rule == "backoff") {
    // In the simulation each failure soon after the start is a failed start.
    starts_failed_ = uptime_ < rendezvous::kQuickFailure ? starts_failed_ + 1 : 0;
    if (++charged_ > job_.max_restarts) return "more restarts than allowed";
    const bool must_pause = crashes_ && starts_failed_ > 2 && rules.backoff_max > kShortPause;
    if (rule != "backoff" && must_pause) return "a start that failed again without a pause";
    if (rule == "backoff" && starts_failed_ < 2) return "a pause before the first restart";
    return "";
  }
  ending_rule_ = rule;
  const bool spent = charged_ >= job_.max_restarts;
  if (rule == "restarts_spent") return spent ? "" : "restarts were left";
  if (spent && rule != "membership_spent") return "given up for good with the budget spent";
  if (rule == "membership_spent" && changes_ < rules.max_membership_changes) return "changes left";
  if (rule == "crash_loop" && rules.crash_loop == 0) return "a crash loop that is switched off";
  if (rule == "no_progress" && rules.give_up_after == 0) return "no progress, switched off";
  return "";
}

void QuarantineWatch::OnNote(const rendezvous::Note& note, Instant now) {
  if (!Is(note, "round_closed")) return;
  const std::string& node = NoteField(note, "began_on");
  if (!node.empty()) failures_[node].push_back(now);
}

bool QuarantineWatch::Quarantined(const std::string& node, Instant now) const {
  const auto found = failures_.find(node);
  if (found == failures_.end() || job_.restart.quarantine_after == 0) return false;
  const auto counts = [&](Instant at) { return now < at + job_.restart.quarantine_time; };
  return std::count_if(found->second.begin(), found->second.end(), counts) >=
         static_cast<long>(job_.restart.quarantine_after);
}

std::string QuarantineWatch::OnFormed(const rendezvous::JobView& view, Instant now) const {
  uint32_t members = 0;
  std::string bad_member;
  std::string left_out;
  std::string bad_waiting;
  bool shown = true;
  for (const rendezvous::NodeView& node : view.nodes) {
    const bool quarantined = Quarantined(node.node_id.value(), now);
    members += node.group_rank ? 1 : 0;
    if (node.group_rank && quarantined) bad_member = node.node_id.value();
    const bool waits = node.state == "joined" || node.state == "spare";
    // A node that claims a rank may have a rival for it, and is no candidate then.
    const bool could_start = waits && !node.info.node_rank;
    if (!node.group_rank && !quarantined && could_start) left_out = node.node_id.value();
    if (!node.group_rank && quarantined && could_start) bad_waiting = node.node_id.value();
    if (!node.group_rank && node.state == "quarantined") bad_waiting = node.node_id.value();
    shown = shown && (node.group_rank || !quarantined || !waits);
  }
  const bool is_full = members >= job_.nodes_max;
  if (!shown && (is_full || job_.restart.quarantine_shrinks))
    return "a quarantine that is not shown";
  if (!job_.restart.quarantine_shrinks && !is_full && !bad_waiting.empty()) {
    return absl::StrCat(bad_waiting, " is left out, and nobody has its place");
  }
  if (bad_member.empty()) return "";
  if (job_.restart.quarantine_shrinks && members > job_.nodes_min) {
    return absl::StrCat(bad_member, " takes part in its quarantine");
  }
  return left_out.empty() ? ""
                          : absl::StrCat(bad_member, " takes part in its quarantine, and ",
                                         left_out, " is left out");
}

std::string DrainWatch::OnNote(const rendezvous::Note& note) {
  if (Is(note, "drain")) drained_.insert(NoteField(note, "node"));
  if (Is(note, "undrain")) drained_.erase(NoteField(note, "node"));
  if (!Is(note, "generation")) return "";
  for (const std::string& node : NodesOf(note)) {
    if (drained_.contains(node)) return absl::StrCat(node, " was drained and gets ranks");
  }
  return "";
}

void SuccessTruth::OnEnded(Generation generation, bool ok) {
  if (ok) ++succeeded_[generation];
}

uint32_t SuccessTruth::succeeded(Generation generation) const {
  const auto found = succeeded_.find(generation);
  return found == succeeded_.end() ? 0 : found->second;
}

std::string SuccessTruth::OnVerdict(const rendezvous::Verdict& verdict, uint32_t world_size) const {
  if (verdict.outcome != rendezvous::Outcome::kSucceeded) return "";
  const uint32_t count = succeeded(verdict.generation);
  if (count == world_size) return "";
  return absl::StrCat("success with ", count, " of ", world_size, " workers done");
}

std::string StopSteps::OnStopped(Generation generation, uint64_t step) {
  ++count_;
  const uint64_t first = steps_.emplace(generation, step).first->second;
  if (first == step) return "";
  return absl::StrCat("workers of one generation stop at steps ", first, " and ", step);
}

std::string VerdictWatch::OnExit(const launcher::Exit& exit) {
  if (!exit.verdict) return "";
  const rendezvous::Outcome outcome = exit.verdict->outcome;
  if (outcome_ && *outcome_ != outcome) return "two nodes heard two verdicts";
  outcome_ = outcome;
  return "";
}

}  // namespace ddprun::sim
