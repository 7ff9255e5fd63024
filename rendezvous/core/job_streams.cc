#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/timing.h"

// Streams, joins, and what a node that comes back is told (R2, R4, R6).
namespace ddprun::rendezvous {

void Job::On(const MessageReceived& event) {
  if (nodes_.IsStray(event.stream)) {
    AddNote("ignored", {{"node", event.message.node_id.value()}, {"why", "its stream was ended"}});
    return;
  }
  Node* node = nodes_.FindByStream(event.stream);
  if (node == nullptr) return OnFirstMessage(event.stream, event.message);
  OnMessage(*node, event.message);
}

void Job::On(const StreamClosed& event) {
  Node* node = nodes_.Close(event.stream);
  if (node == nullptr) return;
  node->standby.reset();
  node->closed_at = now_;
  // Of a node that has renewed none of the last probes, the end of the stream says nothing new:
  // networks that were down deliver late what they carried, and then reset it; and agents close
  // what a service that was stopped didn't answer. Its lease decides (R4).
  const bool is_fresh = now_ - node->proof <= 3 * ProbeInterval(spec_.lease);
  node->grace_end = is_fresh ? now_ + spec_.reconnect_grace : Instant::Infinite();
  Refresh(*node);
  if (phase_ == Phase::kEnded) RemoveNode(*node, RoundMember::State::kLeft, "", absl::OkStatus());
}

void Job::OnFirstMessage(StreamKey stream, const AgentMessage& message) {
  const Join* join = std::get_if<Join>(&message.body);
  if (join == nullptr) {
    return Refuse(stream, message.node_id,
                  absl::InvalidArgumentError("the first message of a stream must be a Join"));
  }
  if (absl::Status status = CheckJoin(message, *join); !status.ok()) {
    return Refuse(stream, message.node_id, std::move(status));
  }
  if (phase_ == Phase::kEnded) return JoinEnded(stream, message, *join);

  Node* node = nodes_.FindById(message.node_id);
  if (node != nullptr && node->incarnation == message.incarnation) {
    return Reattach(*node, stream, message, *join);
  }
  if (node != nullptr && IsLive(*node)) {
    // Agents of one host that claim one rank have one id; the claim is what their user typed.
    if (absl::Status status = CheckClaim(nullptr, join->node); !status.ok()) {
      return Refuse(stream, message.node_id, std::move(status));
    }
    return Refuse(stream, message.node_id,
                  absl::AlreadyExistsError(absl::StrCat(
                      "node id '", message.node_id.value(), "' is held by a live agent on ",
                      node->info.hostname, " (pid ", node->info.agent_pid,
                      "): stop that one first, or give this node another id")));
  }
  if (absl::Status status = CheckClaim(node, join->node); !status.ok()) {
    return Refuse(stream, message.node_id, std::move(status));
  }
  if (node != nullptr) LoseNode(*node, LossWhy::kSuperseded);
  AddNode(stream, message, *join);
}

// All that can be said without the other nodes.
absl::Status Job::CheckJoin(const AgentMessage& message, const Join& join) const {
  DDPRUN_RETURN_IF_ERROR(CheckProtocol(join));
  DDPRUN_RETURN_IF_ERROR(CheckToken(token_, join));
  DDPRUN_RETURN_IF_ERROR(CheckTerm(term_, message));
  DDPRUN_RETURN_IF_ERROR(CheckBounds(message, join));
  if (!ever_joined_ && message.term == term_) {
    return absl::AbortedError(absl::StrCat("the job '", message.run_id,
                                           "' that this agent was part of has ended and is "
                                           "forgotten: start it again if it is to run again"));
  }
  const bool takes_new_spec = !has_spec_ || (generation_ == Generation() &&
                                             phase_ == Phase::kForming && nodes_.nodes().empty());
  if (!takes_new_spec) {
    DDPRUN_RETURN_IF_ERROR(CheckSameJob(spec_, HolderText(), join.job));
  }
  if (const Departed* departed = nodes_.FindDeparted(message.incarnation)) {
    DDPRUN_RETURN_IF_ERROR(departed->refusal);
    if (message.stream <= departed->stream_number) {
      return absl::AbortedError(absl::StrCat("stream ", message.stream.value(),
                                             " of this agent is older than its last one, ",
                                             departed->stream_number.value()));
    }
  }
  DDPRUN_RETURN_IF_ERROR(CheckDrained(message, join));
  if (nodes_.nodes().size() >= kNodesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the job has ", kNodesMax, " nodes already, the most that are served"));
  }
  return absl::OkStatus();
}

// Errors: ALREADY_EXISTS — a live node other than `self` claims the same node rank.
absl::Status Job::CheckClaim(const Node* self, const NodeInfo& info) {
  if (!info.node_rank) return absl::OkStatus();
  for (const uint64_t order : nodes_.Claimants(*info.node_rank)) {
    const Node& holder = *nodes_.FindByOrder(order);
    if (&holder == self || !IsLive(holder)) continue;
    return absl::AlreadyExistsError(
        absl::StrCat("node rank ", *info.node_rank, " is held by ", holder.info.hostname, " (pid ",
                     holder.info.agent_pid, "): give this node another --node_rank"));
  }
  return absl::OkStatus();
}

// Live: it has a stream and spoke within the last two probes.
bool Job::IsLive(const Node& node) const {
  return node.stream && now_ - node.heard <= 2 * ProbeInterval(spec_.lease);
}

// A holder that speaks keeps its claim; those who waited for it to be lost are sent away.
void Job::RefuseRivals(const Node& holder) {
  if (!holder.info.node_rank || !nodes_.HoldsItsClaim(holder)) return;
  const std::vector<uint64_t> claimants = nodes_.Claimants(*holder.info.node_rank);
  for (size_t i = 1; i < claimants.size(); ++i) {
    Node& rival = *nodes_.FindByOrder(claimants[i]);
    const absl::Status refusal = absl::AlreadyExistsError(absl::StrCat(
        "node rank ", *holder.info.node_rank, " is held by ", holder.info.hostname, " (pid ",
        holder.info.agent_pid, "), which is back: give this node another --node_rank"));
    AddNote("node_refused", {{"node", rival.id.value()}, {"why", std::string(refusal.message())}});
    if (rival.stream) CloseNodeStream(rival, refusal);
    RemoveNode(rival, RoundMember::State::kLeft, "", absl::OkStatus());
  }
}

void Job::Attach(Node& node, StreamKey stream, StreamNumber number) {
  nodes_.Attach(node, stream, number);
  node.heard = now_;
  node.proof = now_;
  node.closed_at = Instant::Infinite();
  node.grace_end = Instant::Infinite();
  node.idle_nonce = 0;
  node.standby.reset();
  SendTo(node, Welcome{.term = term_,
                       .release = kVersion,
                       .lease = spec_.lease,
                       .processed_sequence = node.processed});
  if (phase_ == Phase::kEnded) return;
  node.lease_end = now_ + spec_.lease;
  if (tick_due_.is_infinite()) tick_due_ = now_ + ProbeInterval(spec_.lease);
}

void Job::AddNode(StreamKey stream, const AgentMessage& message, const Join& join) {
  if (!has_spec_ || (generation_ == Generation() && nodes_.nodes().empty())) {
    spec_ = join.job;
    has_spec_ = true;
    if (!ever_joined_) first_join_ = now_;
    ever_joined_ = true;
    ledger_.Begin(now_);
    forming_since_ = now_;
    reason_ = "waiting for nodes";
    blame_.SetRules(spec_.restart);
  }
  const Departed* departed = nodes_.FindDeparted(message.incarnation);
  const bool left = departed != nullptr && departed->left;
  Node& node = nodes_.Add(message.node_id, message.incarnation, join.node);
  if (departed != nullptr) {
    node.processed = departed->processed;
    // It was lost before it had left, and may not even know that it is to leave (R15).
    node.draining = FindDrained(node.id) != nullptr;
    // Done is not dead: it takes its place in the generation again (R8).
    if (round_ && departed->done_rank && departed->done_in == generation_ &&
        round_->member(*departed->done_rank).node_order == 0 &&
        !round_->member(*departed->done_rank).gone()) {
      node.group_rank = departed->done_rank;
      round_->SetNode(*node.group_rank, node.order);
    }
  }
  Attach(node, stream, message.stream);
  if (left) {  // its Leave was processed; what it missed is our goodbye
    CloseNodeStream(node, absl::OkStatus());
    return RemoveNode(node, RoundMember::State::kLeft, "", absl::OkStatus());
  }
  blame_.Inherit(node.id, node.info.hostname, [this](const NodeId& id) {
    return std::as_const(nodes_).FindById(id) != nullptr;
  });
  AddNote("node_joined", {{"node", node.id.value()},
                          {"host", node.info.hostname},
                          {"agent_pid", absl::StrCat(node.info.agent_pid)},
                          {"address", node.info.address}});
  Resync(node, message, join);
  Refresh(node);
}

void Job::Reattach(Node& node, StreamKey stream, const AgentMessage& message, const Join& join) {
  if (message.stream <= node.stream_number) {
    return Refuse(stream, node.id,
                  absl::AbortedError(absl::StrCat("stream ", message.stream.value(),
                                                  " of this agent is not newer than its last one, ",
                                                  node.stream_number.value())));
  }
  const bool was_away = !node.stream;
  if (node.stream) {
    CloseNodeStream(node, absl::AbortedError("a newer stream of this agent took over"));
  }
  node.info.address = join.node.address;
  node.info.store_address = join.node.store_address;
  if (join.group_state == GroupState::kIdle) node.info.master_port = join.node.master_port;
  Attach(node, stream, message.stream);
  if (was_away) AddNote("node_reconnected", {{"node", node.id.value()}});
  Resync(node, message, join);
  Refresh(node);
  RefuseRivals(node);
}

// Tells a node what it may have missed, from what it says that it is doing.
void Job::Resync(Node& node, const AgentMessage& message, const Join& join) {
  standby_due_.push_back(node.order);
  if (node.draining) SendDrain(node);
  const bool has_workers =
      join.group_state == GroupState::kRunning || join.group_state == GroupState::kStopping;
  if (!node.group_rank) {
    if (has_workers) return BeginCleaning(node, message.generation);
    node.cleaning = Generation();
    node.stop_bound = Instant::Infinite();
    return;
  }
  const bool idle = join.group_state == GroupState::kIdle;
  if (phase_ == Phase::kRunning) {
    if (idle || message.generation != generation_) SendTo(node, AssignmentOf(*node.group_rank));
    AskForStop(node);
    return;
  }
  if (round_->member(*node.group_rank).state == RoundMember::State::kStopped) return;
  SendStop(node);
  if (!idle) return;
  // Either the assignment never reached it, or reports are on their way: its answer to this probe
  // comes after them.
  node.idle_nonce = probes_.Send(now_);
  SendTo(node, Probe{.nonce = node.idle_nonce, .processed_sequence = node.processed});
}

// A node that runs workers of a generation without it stops them before it can take part.
void Job::BeginCleaning(Node& node, Generation generation) {
  node.cleaning = generation;
  if (node.stop_bound.is_infinite()) node.stop_bound = now_ + spec_.stop_grace + kStopSlack;
  SendTo(node, StopWorkers{.generation = generation,
                           .reason = absl::StrCat("generation ", generation.value(),
                                                  " goes on without this node, which was lost")});
}

// A node that we knew gets the verdict, and everybody else is sent away: it would wait for a job
// that nobody is left of.
void Job::JoinEnded(StreamKey stream, const AgentMessage& message, const Join& join) {
  Node* node = nodes_.FindById(message.node_id);
  const bool known = node != nullptr ? node->incarnation == message.incarnation
                                     : nodes_.FindDeparted(message.incarnation) != nullptr;
  if (forgotten_ || !known || (node != nullptr && message.stream <= node->stream_number)) {
    return Refuse(stream, message.node_id,
                  absl::AbortedError(
                      absl::StrCat("the job has ended (", OutcomeText(verdict_.outcome), ": ",
                                   verdict_.reason, "); to run it again, start all nodes anew")));
  }
  if (node == nullptr) {
    const uint64_t processed = nodes_.FindDeparted(message.incarnation)->processed;
    node = &nodes_.Add(message.node_id, message.incarnation, join.node);
    node->processed = processed;
  }
  if (node->stream) CloseNodeStream(*node, absl::AbortedError("a newer stream took over"));
  Attach(*node, stream, message.stream);
  Refresh(*node);
  SendTo(*node, verdict_);
}

void Job::Refuse(StreamKey stream, const NodeId& node, absl::Status status) {
  nodes_.AddStray(stream);
  AddNote("node_refused",
          {{"node", Bounded(node.value(), kNameBytesMax)}, {"why", std::string(status.message())}});
  effects_.push_back(CloseStream{.stream = stream, .status = std::move(status)});
}

void Job::CloseNodeStream(Node& node, absl::Status status) {
  effects_.push_back(CloseStream{.stream = nodes_.Detach(node), .status = std::move(status)});
}

std::string Job::HolderText() const {
  if (nodes_.nodes().empty()) return "the running job";
  return nodes_.nodes().begin()->second.info.hostname;
}

}  // namespace ddprun::rendezvous
