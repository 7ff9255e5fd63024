#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"

// Standby texts and what status calls show.
namespace ddprun::rendezvous {

// Who is yet to come, where everybody says by a claim who it is: "node ranks 3, 5"; else "".
std::string Job::MissingText() const {
  constexpr uint32_t kRanksListedMax = 8;  // more would be read by nobody
  if (candidates_ >= spec_.nodes_min || spec_.nodes_min - candidates_ > kRanksListedMax) return "";
  if (candidates_ == 0 || claiming_candidates_ != candidates_) return "";
  const std::vector<uint32_t> missing = nodes_.Unclaimed(spec_.nodes_min);
  // Others claim something else, or are here and can't start yet.
  if (missing.size() != spec_.nodes_min - candidates_) return "";
  return absl::StrCat("node rank", missing.size() == 1 ? " " : "s ", absl::StrJoin(missing, ", "));
}

Standby Job::StandbyOf(const Node& node, const std::string& missing) const {
  Standby standby;
  const bool has_round = round_.has_value();
  const uint32_t members = has_round ? static_cast<uint32_t>(round_->members().size()) : 0;
  standby.nodes_present = has_round ? members : candidates_;
  standby.nodes_wanted =
      standby.nodes_present < spec_.nodes_min ? spec_.nodes_min : spec_.nodes_max;
  if (node.cleaning != Generation()) {
    standby.reason = absl::StrCat("this node's workers of generation ", node.cleaning.value(),
                                  " must end first");
  } else if (!nodes_.HoldsItsClaim(node)) {
    const Node& holder = *nodes_.FindByOrder(nodes_.Claimants(*node.info.node_rank).front());
    standby.reason =
        absl::StrCat("node rank ", *node.info.node_rank, " is held by ", holder.info.hostname,
                     ", which is silent; waiting until it is back or lost");
  } else if (blame_.Quarantined(node.id, now_) && phase_ == Phase::kRunning) {
    standby.spare = true;
    standby.reason = absl::StrCat(
        "the job runs on ", CountText(members, "node"), "; this one is left out (rule ",
        RuleName(Rule::kQuarantine), "): ", CountText(blame_.Count(node.id, now_), "failure"),
        " began here within ", DurationText(spec_.restart.quarantine_time),
        "; it steps in when the others don't suffice");
  } else if (phase_ == Phase::kClosing) {
    standby.reason = absl::StrCat("generation ", generation_.value(), " is ending: ", reason_);
  } else if (phase_ == Phase::kRunning) {
    const bool grows = !DecideGrowth(spec_, GrowthState()).until.is_infinite();
    standby.spare = !grows;
    standby.reason =
        grows ? absl::StrCat("the job runs on ", CountText(members, "node"),
                             " and takes this one in at most ",
                             DurationText(spec_.last_call_timeout), " after the first newcomer")
              : absl::StrCat("the job runs on ", CountText(members, "node"),
                             "; this one is a spare and steps in when one is lost");
  } else if (phase_ == Phase::kForming && now_ < forming_since_) {
    standby.reason = reason_;
  } else if (candidates_ < spec_.nodes_min) {
    standby.reason = absl::StrCat(candidates_, " of ", CountText(spec_.nodes_min, "node"),
                                  " are here; waiting for ", spec_.nodes_min - candidates_, " more",
                                  missing.empty() ? "" : absl::StrCat(" (", missing, ")"),
                                  cause_text_.empty() ? "" : absl::StrCat(" after ", cause_text_));
  } else {
    standby.reason = absl::StrCat(candidates_, " of at most ", CountText(spec_.nodes_max, "node"),
                                  " are here, enough to start; waiting up to ",
                                  DurationText(spec_.last_call_timeout), " for more");
  }
  return standby;
}

void Job::SendStandby(Node& node, const std::string& missing) {
  if (!node.stream || node.group_rank || node.draining) return;
  Standby standby = StandbyOf(node, missing);
  if (node.standby == standby) return;
  node.standby = standby;
  SendTo(node, std::move(standby));
}

// A node is told about its own join at once; about the others' at the next tick, so that a join
// doesn't cost a message to everyone.
void Job::SendDueStandbys() {
  const bool due = standby_due_all_ || !standby_due_.empty();
  if (due && phase_ != Phase::kEnded) {
    const std::string missing = MissingText();
    if (standby_due_all_) {
      for (auto& [order, node] : nodes_.nodes()) SendStandby(node, missing);
    } else {
      for (const uint64_t order : standby_due_) {
        if (Node* node = nodes_.FindByOrder(order)) SendStandby(*node, missing);
      }
    }
  }
  standby_due_all_ = false;
  standby_due_.clear();
}

std::string Job::StateOf(const Node& node) const {
  if (!node.stream) return "unreachable";
  if (node.draining) return "draining";
  if (node.cleaning != Generation()) return "stopping";
  if (!node.group_rank && phase_ == Phase::kRunning && blame_.Quarantined(node.id, now_)) {
    return "quarantined";
  }
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
  static constexpr const char* kPhases[] = {"forming", "running", "closing", "ended"};
  JobView view;
  view.spec = spec_;
  view.phase = kPhases[static_cast<int>(phase_)];
  view.reason = reason_;
  view.generation = generation_;
  view.restart_count = history_.restart_count;
  view.restarts_charged = history_.restarts_charged;
  view.drained = drained_;
  view.age = ever_joined_ ? now - first_join_ : absl::ZeroDuration();
  view.spent = ledger_.Spent(now);
  for (const auto& [order, node] : nodes_.nodes()) {
    view.nodes.push_back({.node_id = node.id,
                          .info = node.info,
                          .state = StateOf(node),
                          .group_rank = node.group_rank,
                          .silent = now - node.proof,
                          .progress = node.progress,
                          .step_time = node.step_time,
                          .progress_age = now - node.progress_at,
                          .gpus = node.gpus,
                          .gpus_age = now - node.gpus_at});
    if (node.group_rank && round_) {
      view.nodes.back().base_rank = round_->member(*node.group_rank).placement.base_rank;
    }
  }
  std::stable_sort(view.nodes.begin(), view.nodes.end(), [](const auto& a, const auto& b) {
    return a.group_rank.value_or(UINT32_MAX) < b.group_rank.value_or(UINT32_MAX);
  });
  return view;
}

}  // namespace ddprun::rendezvous
