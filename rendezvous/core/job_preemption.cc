#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"

// Nodes that are about to be taken away: all ranks stop at one step (R14).
namespace ddprun::rendezvous {

void Job::OnReport(Node& node, const Preempt& preempt) {
  AddNote("preempt", {{"generation", absl::StrCat(generation_.value())},
                      {"node", node.id.value()},
                      {"reason", preempt.reason},
                      {"deadline_ms", absl::StrCat(absl::ToInt64Milliseconds(preempt.deadline))}});
  const std::string why = absl::StrCat(
      node.info.hostname, preempt.drained ? " is " : " is preempted: ", preempt.reason);
  if (!preempt.drained) NotePreempted(why);
  preempted_host_ = preempted_host_ || preempt.ends_job;
  if (phase_ != Phase::kRunning) return;
  if (stop_.active()) return stop_.Hasten(now_ + preempt.deadline);
  stop_why_ = why;
  stop_trigger_ = preempt.drained ? "drained" : "preempted";
  std::set<uint32_t> members;
  for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
    if (!round_->member(rank).succeeded) members.insert(rank);
  }
  stop_.Begin(now_, now_ + preempt.deadline, std::move(members));
  CarryOut(StopAgreement::Action::kAsk);
}

void Job::OnReport(Node& node, const StopPrepared& prepared) {
  CarryOut(stop_.Add(now_, *node.group_rank, prepared.round, prepared.look));
}

void Job::NotePreempted(std::string text) {
  if (preempted_.empty()) preempted_ = std::move(text);
}

void Job::CarryOut(StopAgreement::Action action) {
  switch (action) {
    case StopAgreement::Action::kNone:
      return;
    case StopAgreement::Action::kAsk:
      for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
        if (round_->member(rank).node_order == 0) continue;
        AskForStop(*nodes_.FindByOrder(round_->member(rank).node_order));
      }
      if (stop_.step() > 0) {
        AddNote("stop_prepared", {{"generation", absl::StrCat(generation_.value())},
                                  {"round", absl::StrCat(stop_.round())},
                                  {"step", absl::StrCat(stop_.step())}});
      }
      return;
    case StopAgreement::Action::kCommit:
      AddNote("stop_committed", {{"generation", absl::StrCat(generation_.value())},
                                 {"round", absl::StrCat(stop_.round())},
                                 {"step", absl::StrCat(stop_.step())}});
      return BeginClosing(stop_why_, stop_trigger_);
    case StopAgreement::Action::kGiveUp:
      AddNote("stop_given_up",
              {{"generation", absl::StrCat(generation_.value())}, {"why", stop_.why()}});
      return BeginClosing(stop_why_, stop_trigger_);
  }
}

// Also again, when the question may have been lost with a stream.
void Job::AskForStop(const Node& node) {
  if (!node.group_rank || !stop_.awaits(*node.group_rank)) return;
  SendTo(node,
         PrepareStop{.generation = generation_, .round = stop_.round(), .step = stop_.step()});
}

// A member that ends in another way than at the stop step, while the others save: those that never
// get there need not wait for it. Their agents spare those that save.
void Job::AbandonStop() {
  if (!stop_.committed()) return;
  stop_.Reset();
  for (const RoundMember& member : round_->members()) {
    if (member.state != RoundMember::State::kStopping || member.node_order == 0) continue;
    SendStop(*nodes_.FindByOrder(member.node_order));
  }
}

// Ends the job when it can't go on without those that were preempted. True: it has ended.
bool Job::EndPreempted() {
  if (preempted_.empty()) return false;
  uint32_t left = candidates_;
  if (round_) {
    for (const RoundMember& member : round_->members()) {
      const bool stays = member.node_order != 0 && !nodes_.FindByOrder(member.node_order)->draining;
      if (member.state == RoundMember::State::kStopped && stays) ++left;
    }
  }
  if (left >= spec_.nodes_min && !preempted_host_) return false;
  EndJob(Outcome::kPreempted, Rule::kPreempted,
         preempted_host_
             ? preempted_
             : absl::StrCat(preempted_, "; ", CountText(left, "node"), left == 1 ? " is" : " are",
                            " left of at least ", spec_.nodes_min));
  return true;
}

}  // namespace ddprun::rendezvous
