#include "tests/sim/checkers.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::sim {

using rendezvous::Assignment;
using rendezvous::Generation;

std::string NoteField(const rendezvous::Note& note, const std::string& key) {
  for (const auto& [name, value] : note.fields) {
    if (name == key) return value;
  }
  return "";
}

std::string CheckRanks(const std::vector<Assignment>& assignments) {
  std::vector<const Assignment*> order;
  for (const Assignment& assignment : assignments) order.push_back(&assignment);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->group_rank < b->group_rank; });
  const Assignment& first = *order.front();
  uint32_t next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Assignment& mine = *order[i];
    if (mine.group_rank != i) return absl::StrCat("group rank ", i, " is not there once");
    if (mine.base_rank != next) return absl::StrCat("base rank of ", i, " is ", mine.base_rank);
    if (mine.members.size() <= i) return "a member is not listed";
    next += mine.members[i].worker_count;
    if (mine.generation != first.generation || mine.world_size != first.world_size ||
        mine.group_world_size != order.size() || mine.restart_count != first.restart_count ||
        mine.master_addr != first.master_addr || mine.master_port != first.master_port ||
        mine.members != first.members) {
      return absl::StrCat("nodes of one generation don't agree at group rank ", i);
    }
  }
  if (next != first.world_size) return "the world is not the sum of its nodes";
  if (first.master_port == 0) return "no master port";
  if (first.master_addr != first.members.front().hostname) return "the master is not rank 0's node";
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
      return std::holds_alternative<rendezvous::Welcome>(send->message)
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
  if (note.event == "generation") {
    any_gone_ = false;
    members_.clear();
    for (absl::string_view word : absl::StrSplit(NoteField(note, "ranks"), ' ')) {
      members_.emplace(word.substr(0, word.find('=')));
    }
  } else if (note.event == "node_lost" || note.event == "node_left") {
    const bool done = absl::StartsWith(NoteField(note, "why"), "done, ");  // done is not dead
    any_gone_ |= members_.contains(NoteField(note, "node")) && !done;
  } else if (note.event == "round_closed") {
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

void SuccessTruth::OnEnded(Generation generation, bool ok) {
  if (ok) ++succeeded_[generation];
}

std::string SuccessTruth::OnVerdict(const rendezvous::Verdict& verdict, uint32_t world_size) const {
  if (verdict.outcome != rendezvous::Outcome::kSucceeded) return "";
  const auto found = succeeded_.find(verdict.generation);
  const uint32_t count = found == succeeded_.end() ? 0 : found->second;
  if (count == world_size) return "";
  return absl::StrCat("success with ", count, " of ", world_size, " workers done");
}

std::string VerdictWatch::OnExit(const launcher::Exit& exit) {
  if (!exit.verdict) return "";
  const rendezvous::Outcome outcome = exit.verdict->outcome;
  if (outcome_ && *outcome_ != outcome) return "two nodes heard two verdicts";
  outcome_ = outcome;
  return "";
}

}  // namespace ddprun::sim
