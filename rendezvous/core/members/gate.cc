#include "rendezvous/core/members/gate.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/releases.h"

namespace ddprun::rendezvous {
namespace {

std::string InBrackets(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(" (", reason, ")");
}

}  // namespace

void DrainList::Add(DrainedNode node) {
  DDPRUN_CHECK(!node.node_id.value().empty(), "a drained node without a name");
  if (nodes_.size() == kDrainedMax) nodes_.erase(nodes_.begin());
  nodes_.push_back(std::move(node));
  DDPRUN_CHECK(nodes_.size() <= kDrainedMax, "the list is beyond its bound");
}

bool DrainList::Undo(const NodeId& node) {
  return std::erase_if(nodes_, [&](const DrainedNode& each) { return each.node_id == node; }) > 0;
}

const DrainedNode* DrainList::Find(const NodeId& node) const {
  const auto found = std::find_if(nodes_.rbegin(), nodes_.rend(),
                                  [&](const DrainedNode& each) { return each.node_id == node; });
  return found == nodes_.rend() ? nullptr : &*found;
}

absl::Status DrainList::CheckMachine(const std::string& hostname,
                                     const std::string& address) const {
  for (const DrainedNode& drained : nodes_) {
    if (drained.hostname != hostname || drained.address != address) continue;
    return absl::AbortedError(absl::StrCat("node ", drained.node_id.value(), " was drained",
                                           InBrackets(drained.reason),
                                           ", so this machine may not join. To let it in again: "
                                           "ddprun drain --undo '",
                                           drained.node_id.value(), "'"));
  }
  return absl::OkStatus();
}

std::string DrainList::BrokenInvariant() const {
  if (nodes_.size() > kDrainedMax) return "more drained machines than are remembered";
  const bool named = std::all_of(nodes_.begin(), nodes_.end(), [](const DrainedNode& each) {
    return !each.node_id.value().empty();
  });
  return named ? "" : "a drained node without a name";
}

namespace {

JoinDecision Refused(absl::Status why) {
  return {.kind = JoinDecision::Kind::kRefuse, .refusal = std::move(why)};
}

std::string HolderText(const Roster& roster) {
  return roster.empty() ? "the running job" : roster.nodes().begin()->second.info.hostname;
}

absl::Status CheckStream(const AgentMessage& message, StreamNumber last, const char* than) {
  if (message.stream > last) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("stream ", message.stream.value(), " of this agent is ",
                                         than, " its last one", ", ", last.value()));
}

// Errors: ALREADY_EXISTS — a live node other than `self` claims the same node rank.
absl::Status CheckClaim(Instant now, const ProbePace& pace, const Roster& roster, const Node* self,
                        const NodeInfo& info) {
  if (!info.node_rank) return absl::OkStatus();
  for (const uint64_t order : roster.table().Claimants(*info.node_rank)) {
    const Node& holder = *roster.table().FindByOrder(order);
    if (&holder != self && holder.IsLive(now, pace)) return ClaimIsHeld(holder, false);
  }
  return absl::OkStatus();
}

// Any two releases in a job must be allowed to meet, because another node may have the service
// next. A node with the service's own release meets whatever the service has let in. A node that
// took part isn't judged again: the service may have been upgraded while the job ran, and no job
// ends for that.
absl::Status CheckReleases(const Roster& roster, const NodeId& id, const NodeInfo& node) {
  if (node.release == kVersion) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(CheckRelease(node, "the rendezvous service of this job", kVersion));
  for (const auto& [order, other] : roster.nodes()) {
    if (other.id == id || MayMeet(node.release, other.info.release)) continue;
    return CheckRelease(node, other.info.hostname, other.info.release);
  }
  return absl::OkStatus();
}

// Whether the agent process took part in the job; it may have gone.
bool IsKnown(const AgentMessage& message, const Roster& roster) {
  const Node* self = roster.table().FindById(message.node_id);
  return (self != nullptr && self->incarnation == message.incarnation) ||
         roster.table().FindDeparted(message.incarnation) != nullptr;
}

}  // namespace

absl::Status ClaimIsHeld(const Node& holder, bool is_back) {
  return absl::AlreadyExistsError(absl::StrCat(
      "node rank ", *holder.info.node_rank, " is held by ", holder.info.hostname, " (pid ",
      holder.info.agent_pid, ")", is_back ? ", which is back" : "", ": ", kClaimHint));
}

Gate::Gate(Term term, std::string token) : term_(term), token_(std::move(token)) {
  DDPRUN_CHECK(term != Term(), "a service needs a term");
}

void Gate::Recover(const std::optional<JobSpec>& spec) {
  DDPRUN_CHECK(!open_, "a job that goes on has begun already");
  recovered_ = true;
  if (!spec) return;
  spec_ = *spec;
  open_ = true;
}

bool Gate::TakesNewSpec(const Roster& roster, bool unformed) const {
  return !open_ || (unformed && roster.empty());
}

bool Gate::Admit(const Join& join, const Roster& roster, bool unformed) {
  if (!TakesNewSpec(roster, unformed)) return false;
  DDPRUN_CHECK(0 < join.job.nodes_min && join.job.nodes_min <= join.job.nodes_max, join.job.run_id);
  spec_ = join.job;
  open_ = true;
  return true;
}

absl::Status Gate::CheckJoin(const AgentMessage& message, const Join& join, const Roster& roster,
                             const DrainList& drains, bool unformed) const {
  DDPRUN_RETURN_IF_ERROR(CheckProtocol(join));
  DDPRUN_RETURN_IF_ERROR(CheckToken(token_, join));
  DDPRUN_RETURN_IF_ERROR(CheckTerm(term_, message));
  DDPRUN_RETURN_IF_ERROR(CheckBounds(message, join));
  if (!open() && !recovered_ && message.term == term_) {
    return absl::AbortedError(absl::StrCat("the job '", message.run_id,
                                           "' that this agent was part of has ended and is "
                                           "forgotten: start it again if it is to run again"));
  }
  if (!TakesNewSpec(roster, unformed)) {
    DDPRUN_RETURN_IF_ERROR(CheckSameJob(spec_, HolderText(roster), join.job));
  }
  if (const Departed* departed = roster.table().FindDeparted(message.incarnation)) {
    DDPRUN_RETURN_IF_ERROR(departed->refusal);
    DDPRUN_RETURN_IF_ERROR(CheckStream(message, departed->stream_number, "older than"));
  }
  if (!IsKnown(message, roster)) {
    DDPRUN_RETURN_IF_ERROR(CheckReleases(roster, message.node_id, join.node));
    DDPRUN_RETURN_IF_ERROR(drains.CheckMachine(join.node.hostname, join.node.address));
  }
  if (roster.nodes().size() >= kNodesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the job has ", kNodesMax, " nodes already, the most that are served"));
  }
  return absl::OkStatus();
}

JoinDecision Gate::Decide(Instant now, const AgentMessage& message, const Join& join,
                          const Roster& roster, const DrainList& drains, bool unformed,
                          const ProbePace& pace) const {
  absl::Status status = CheckJoin(message, join, roster, drains, unformed);
  if (!status.ok()) return Refused(std::move(status));
  const Node* known = roster.table().FindById(message.node_id);
  if (known != nullptr && known->incarnation == message.incarnation) {
    status = CheckStream(message, known->stream_number, "not newer than");
    if (!status.ok()) return Refused(std::move(status));
    return {.kind = JoinDecision::Kind::kReattach, .refusal = {}, .known = known};
  }
  const bool is_held = known != nullptr && known->IsLive(now, pace);
  // Agents of one host that claim one rank have one id; the claim is what their user typed.
  status = CheckClaim(now, pace, roster, is_held ? nullptr : known, join.node);
  if (!status.ok()) return Refused(std::move(status));
  if (is_held) {
    return Refused(absl::AlreadyExistsError(absl::StrCat(
        "node id '", message.node_id.value(), "' is held by a live agent on ", known->info.hostname,
        " (pid ", known->info.agent_pid, "): stop that one first, or give this node another id")));
  }
  return {.kind = JoinDecision::Kind::kAdd, .refusal = {}, .known = known};
}

bool Gate::MayHearVerdict(const AgentMessage& message, const Roster& roster) {
  const Node* node = roster.table().FindById(message.node_id);
  if (node == nullptr) return roster.table().FindDeparted(message.incarnation) != nullptr;
  return node->incarnation == message.incarnation && message.stream > node->stream_number;
}

absl::Status Gate::CheckMessage(const Node& node, const AgentMessage& message) const {
  if (message.run_id != spec_.run_id || message.node_id != node.id ||
      message.incarnation != node.incarnation || message.stream != node.stream_number) {
    return absl::InvalidArgumentError(
        "a message that doesn't belong to its stream: run id, node id, incarnation and stream "
        "number must stay those of the Join");
  }
  if (std::holds_alternative<Join>(message.body)) {
    return absl::InvalidArgumentError("a second Join on one stream");
  }
  return CheckTerm(term_, message);
}

}  // namespace ddprun::rendezvous
