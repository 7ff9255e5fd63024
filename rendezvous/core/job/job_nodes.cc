#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job/job.h"
#include "rendezvous/core/timing.h"

// Streams, joins, messages to a node that comes back, and losses (R2, R4, R5, R6, R15).
namespace ddprun::rendezvous {
namespace {

bool HasWorkers(const Join& join) {
  return join.group_state == GroupState::kRunning || join.group_state == GroupState::kStopping;
}

}  // namespace

void Job::On(const MessageReceived& event) {
  const AgentMessage& message = event.message;
  if (roster_.table().IsStray(event.stream)) {
    if (refusal_notes_.Take(now_)) {
      effects_.AddNote("ignored",
                       {{"node", message.node_id.value()}, {"why", "its stream was ended"}});
    }
    return;
  }
  if (const Node* node = roster_.table().FindByStream(event.stream)) {
    return OnMessage(*node, message);
  }
  if (const Join* join = std::get_if<Join>(&message.body)) {
    return OnJoin(event.stream, message, *join);
  }
  Refuse(event.stream, message.node_id,
         absl::InvalidArgumentError("the first message of a stream must be a Join"));
}

void Job::On(const StreamClosed& event) {
  const Node* node = roster_.Close(event.stream);
  if (node == nullptr) return;
  if (phase_ == JobPhase::kEnded) {
    if (event.finished) return RemoveNode(*node, {});
    // The node may have missed the verdict, and comes back for it (R8).
    return roster_.Change(*node, [&](Node& n) { n.MissStream(now_, std::nullopt); });
  }
  // The end of the stream proves nothing if the node has renewed none of the last probes: a network
  // that was down first delivers what it carried and then resets the connection, and agents close
  // connections on which a stopped service didn't answer. The lease decides (R4).
  const bool is_fresh = !node->IsSilent(now_, 3 * pace().interval);
  roster_.Change(*node, [&](Node& n) {
    n.MissStream(now_, is_fresh ? std::optional(spec().reconnect_grace) : std::nullopt);
  });
  if (node->group_rank) round_->SetConnected(*node->group_rank, false);
}

void Job::On(const DrainRequested& event) {
  if (phase_ == JobPhase::kEnded) return;
  if (event.undo) {  // a node that is already leaving still leaves
    if (!drains_.Undo(event.node)) return;
    recorder_.Note();
    return effects_.AddNote("undrain", {{"node", event.node.value()}});
  }
  const Node* node = roster_.table().FindById(event.node);
  if (node == nullptr || node->draining) return;
  drains_.Add({.node_id = node->id,
               .hostname = node->info.hostname,
               .address = node->info.address,
               .reason = event.reason});
  roster_.Change(*node, [](Node& n) { n.Drain(); });
  recorder_.Note();
  effects_.AddNote("drain", {{"node", node->id.value()}, {"reason", event.reason}});
  SendDrain(*node);
}

// ------------------------------------------------------------- joins

void Job::OnJoin(StreamKey stream, const AgentMessage& message, const Join& join) {
  if (absl::Status ahead = CheckNotAhead(message); !ahead.ok()) {
    return Refuse(stream, message.node_id, std::move(ahead));
  }
  if (phase_ == JobPhase::kEnded) {
    const bool is_new = roster_.table().FindById(message.node_id) == nullptr &&
                        roster_.table().FindDeparted(message.incarnation) == nullptr;
    const Farewell::Newcomer newcomer =
        is_new ? farewell_.OnNewcomer(now_, join.node.hostname) : Farewell::Newcomer::kStranger;
    absl::Status status =
        newcomer == Farewell::Newcomer::kNextJob
            ? absl::UnavailableError("the job before this one, of the same name, is just ending")
            : gate_.CheckJoin(message, join, roster_, drains_, unformed());
    if (!status.ok()) return Refuse(stream, message.node_id, std::move(status));
    return JoinEnded(stream, message, join, newcomer == Farewell::Newcomer::kLate);
  }
  // The record of another machine's service doesn't say how long ago it was written, nor which
  // nodes have joined since. An agent with the job's term has been welcomed to it.
  const auto learn_age = [&] {
    if (message.term != gate_.term()) return;
    const absl::Duration missed = ledger_.BegunBefore(now_ - std::min(join.job_age, kAgeMax));
    if (round_) round_->FormedBefore(round_->formed() - missed);
  };
  JoinDecision decision = gate_.Decide(now_, message, join, roster_, drains_, unformed(), pace());
  switch (decision.kind) {
    case JoinDecision::Kind::kRefuse:
      return Refuse(stream, message.node_id, std::move(decision.refusal));
    case JoinDecision::Kind::kReattach:
      learn_age();
      return Reattach(*decision.known, stream, message, join);
    case JoinDecision::Kind::kAdd:
      learn_age();
      if (decision.known != nullptr) LoseNode(*decision.known, LossProof::kSuperseded);
      return AddNode(stream, message, join);
  }
}

void Job::AddNode(StreamKey stream, const AgentMessage& message, const Join& join) {
  if (gate_.Admit(join, roster_, unformed())) {
    ledger_.Begin(now_);
    forming_.BeginFirst(now_);
    farewell_.ExpectAgents(spec().agents_started, now_ + kAgentsStart);
    reason_ = "waiting for nodes";
    blame_.SetRules(spec().restart);
    recorder_.Note();
  }
  const Departed* departed = roster_.table().FindDeparted(message.incarnation);
  const bool left = departed != nullptr && departed->left;
  if (departed == nullptr) farewell_.OnAgent(join.node.hostname);
  const Node& node = roster_.Add(message.node_id, message.incarnation, join.node);
  if (departed != nullptr) {
    // The node was lost before it left, and may not know that it is to leave (R15).
    const bool draining = drains_.Find(node.id) != nullptr;
    // Done is not dead: it takes its place in the generation again (R8).
    std::optional<uint32_t> rank = departed->done_rank;
    const bool is_live = round_ && departed->done_in == generation_ && departed->id == node.id;
    if (rank && !(is_live && round_->IsVacant(*rank))) rank.reset();
    roster_.Change(node, [&](Node& n) {
      n.Resume(departed->processed);
      if (draining) n.Drain();
      if (rank) n.BecomeMember(*rank);
    });
    if (rank) round_->SetNode(*rank, node.order);
  }
  OpenStream(node, stream, message.stream);
  if (left) {  // its Leave was processed; it only missed the answer
    EndStream(node, absl::OkStatus());
    return RemoveNode(node, {});
  }
  blame_.Inherit(node.id, node.info.hostname,
                 [this](const NodeId& id) { return roster_.table().FindById(id) != nullptr; });
  effects_.AddNote("node_joined", {{"node", node.id.value()},
                                   {"host", node.info.hostname},
                                   {"agent_pid", absl::StrCat(node.info.agent_pid)},
                                   {"address", node.info.address}});
  Resync(node, message, join);
}

void Job::Reattach(const Node& node, StreamKey stream, const AgentMessage& message,
                   const Join& join) {
  const bool was_away = !node.stream;
  if (!was_away) EndStream(node, absl::AbortedError("a newer stream of this agent took over"));
  roster_.Change(node, [&](Node& n) { n.Update(join.node, !HasWorkers(join)); });
  OpenStream(node, stream, message.stream);
  if (was_away) effects_.AddNote("node_reconnected", {{"node", node.id.value()}});
  Resync(node, message, join);
  NoteBack(node);
  RefuseRivals(node);
}

// A node that took part gets the verdict. Any other is refused, because it would wait for a job
// that is over.
void Job::JoinEnded(StreamKey stream, const AgentMessage& message, const Join& join, bool is_late) {
  if (!is_late && (farewell_.forgotten() || !Gate::MayHearVerdict(message, roster_))) {
    return Refuse(stream, message.node_id, farewell_.Refusal());
  }
  const Node* node = roster_.table().FindById(message.node_id);
  if (node == nullptr) {
    const Departed* departed = roster_.table().FindDeparted(message.incarnation);
    const uint64_t processed = departed == nullptr ? 0 : departed->processed;
    node = &roster_.Add(message.node_id, message.incarnation, join.node);
    roster_.Change(*node, [&](Node& n) { n.Resume(processed); });
  }
  if (node->stream) EndStream(*node, absl::AbortedError("a newer stream took over"));
  OpenStream(*node, stream, message.stream);
  effects_.SendTo(*node, farewell_.WordsFor(node->id));
}

// Sends a node what it may have missed, judging by the state that it reports.
void Job::Resync(const Node& node, const AgentMessage& message, const Join& join) {
  standby_due_.Mark(node.order);
  if (node.draining) SendDrain(node);
  const bool idle = join.group_state == GroupState::kIdle;
  if (!node.group_rank) {
    // A generation doesn't end for a newcomer that doesn't answer (R3); a round trip shows whether
    // it does.
    if (phase_ == JobPhase::kRunning && !node.answered) {
      const Probe question{.nonce = probes_.Ask(now_), .processed_sequence = Confirmed(node)};
      effects_.SendTo(node, question);
    }
    if (!HasWorkers(join)) {
      return roster_.Change(node, [](Node& n) { n.EndStopping(); });
    }
    // The node runs workers of a generation that goes on without it, and must stop them before it
    // can take part.
    const Instant bound = now_ + spec().stop_grace + kStopSlack;
    roster_.Change(node, [&](Node& n) { n.BeginCleaning(message.generation, bound); });
    return effects_.SendTo(
        node, StopWorkers{.generation = message.generation,
                          .reason = absl::StrCat("generation ", message.generation.value(),
                                                 " goes on without this node, which was lost")});
  }
  const uint32_t rank = *node.group_rank;
  if (phase_ == JobPhase::kRunning) {
    if (idle || message.generation != generation_) {
      effects_.SendTo(node, round_->AssignmentOf(rank, record_.begun_step()));
    }
    return SendQuestion(node);
  }
  if (round_->member(rank).state == RoundMember::State::kStopped) return;
  SendStop(node);
  if (!idle) return;
  // Either the assignment never arrived, or reports are on their way: the answer to this probe
  // comes after them.
  const uint64_t nonce = probes_.Ask(now_);
  roster_.Change(node, [&](Node& n) { n.AskIfIdle(nonce); });
  effects_.SendTo(node,
                  Probe{.nonce = nonce, .processed_sequence = Confirmed(node), .in_order = true});
}

// ------------------------------------------------------------- streams

void Job::OpenStream(const Node& node, StreamKey stream, StreamNumber number) {
  const bool lives = phase_ != JobPhase::kEnded;
  const bool was_silent = node.silent;
  const absl::Duration silence = now_ - node.proof;
  roster_.Attach(node, stream, number, now_, lives ? std::optional(pace().lease) : std::nullopt);
  if (node.group_rank) round_->SetConnected(*node.group_rank, true);
  effects_.SendTo(node, Welcome{.term = gate_.term(),
                                .release = kVersion,
                                .lease = pace().lease,
                                .processed_sequence = Confirmed(node),
                                .job_age = ledger_.Age(now_)});
  if (lives) probes_.Wake(now_, spec().lease, spec().nodes_min);
  NoteHeard(node);
  if (was_silent) NoteSilenceOver(node, silence);
}

void Job::EndStream(const Node& node, absl::Status status) {
  effects_.Put(CloseStream{.stream = roster_.Detach(node), .status = std::move(status)});
  if (node.group_rank) round_->SetConnected(*node.group_rank, false);
}

// Ends the stream of a node that broke the protocol. The node may come back within its grace.
void Job::BreakOff(const Node& node, absl::Status status) {
  NoteRefusal(node.id, status);
  EndStream(node, std::move(status));
  roster_.Change(node, [&](Node& n) { n.MissStream(now_, spec().reconnect_grace); });
}

void Job::Refuse(StreamKey stream, const NodeId& node, absl::Status status) {
  roster_.AddStray(stream);
  NoteRefusal(node, status);
  effects_.Put(CloseStream{.stream = stream, .status = std::move(status)});
}

// The refused agent may come again and again, so these notes have a budget.
void Job::NoteRefusal(const NodeId& node, const absl::Status& status) {
  const std::optional<uint64_t> left_out = refusal_notes_.Take(now_);
  if (!left_out) return;
  StepEffects::Fields fields = {{"node", Bounded(node.value(), kNameBytesMax)},
                                {"why", std::string(status.message())}};
  if (*left_out > 0) fields.emplace_back("left_out", absl::StrCat(*left_out));
  effects_.AddNote("node_refused", std::move(fields));
}

// A holder that is heard keeps its claim; nodes that waited for its loss are refused.
void Job::RefuseRivals(const Node& holder) {
  if (!holder.info.node_rank || !roster_.table().HoldsItsClaim(holder)) return;
  const std::vector<uint64_t> claimants = roster_.table().Claimants(*holder.info.node_rank);
  for (size_t i = 1; i < claimants.size(); ++i) {
    const Node& rival = *roster_.table().FindByOrder(claimants[i]);
    const absl::Status refusal = ClaimIsHeld(holder, /*is_back=*/true);
    NoteRefusal(rival.id, refusal);
    if (rival.stream) EndStream(rival, refusal);
    RemoveNode(rival, {});
  }
}

// ------------------------------------------------------------- silence

SilenceInput Job::SilenceOf(const Node& node) const {
  const bool others_keep_all =
      std::all_of(roster_.nodes().begin(), roster_.nodes().end(), [&node](const auto& each) {
        const Node& other = each.second;
        return &other == &node || !other.group_rank || other.told.can_rejoin;
      });
  return {.now = now_,
          .since = node.heard,
          .others = CountOthers(roster_.nodes(), now_, pace().lease),
          .is_replaced = IsReplaced(node, roster_.nodes()),
          .is_likely_gone = recovery_.IsLikelyGone(node.order),
          .loss = others_keep_all ? absl::ZeroDuration() : cost_.Estimate(node.heard)};
}

// Whether the job waits for a member although its lease is over, and until when; the generation
// goes on meanwhile. The job doesn't need a node that is done (R8), and a node without a rank isn't
// part of a generation.
bool Job::AwaitSilent(const Node& node) {
  if (!node.group_rank || IsDone(node)) return false;
  const SilenceInput input = SilenceOf(node);
  const SilenceDecision decision = DecideSilence(spec(), input);
  if (decision.is_lost) return false;
  const bool begins = !node.silent;
  roster_.Change(node, [&](Node& n) { n.Await(decision.until); });
  if (!begins) return true;
  effects_.AddNote("node_silent",
                   {{"node", node.id.value()},
                    {"silent_ms", absl::StrCat(absl::ToInt64Milliseconds(now_ - node.proof))},
                    {"waits_ms", absl::StrCat(absl::ToInt64Milliseconds(decision.until - now_))},
                    {"why", decision.why == SilenceDecision::Why::kNeeded ? "needed" : "cheaper"}});
  NoteGone(node);
  return true;
}

// A node has joined, so the job may be able to go on without the silent ones. Params: least: the
// time that they have at least from now on.
void Job::ReconsiderSilent(absl::Duration least) {
  if (phase_ != JobPhase::kRunning || roster_.silent() == 0) return;
  for (const auto& [order, node] : roster_.nodes()) {
    if (!node.silent) continue;
    const Instant until = std::max(now_ + least, DecideSilence(spec(), SilenceOf(node)).until);
    roster_.Change(node, [&](Node& n) { n.BoundLease(until); });
  }
}

// The node is back in the generation that it never left. With it the job may be able to go on
// without the other silent ones; but nodes behind the same link are on their way back, too.
void Job::NoteSilenceOver(const Node& node, absl::Duration silence) {
  recovery_.NoteHeard(node.order);
  effects_.AddNote("node_back", {{"node", node.id.value()},
                                 {"silent_ms", absl::StrCat(absl::ToInt64Milliseconds(silence))}});
  ReconsiderSilent(kRecoveryLease);
}

// The generation that the job kept for the silent nodes ends: their leases were over long ago.
void Job::LoseSilent() {
  std::vector<const Node*> silent;
  for (const auto& [order, node] : roster_.nodes()) {
    if (node.silent) silent.push_back(&node);
  }
  for (const Node* node : silent) LoseNode(*node, LossProof::kLeaseExpired);
}

// ------------------------------------------------------------- loss

void Job::LoseNode(const Node& node, LossProof proof) {
  Loss loss = DescribeLoss(proof, node, spec(), pace().lease);
  // Done is not dead (R8): only a later end of the generation makes it a loss.
  const bool done = IsDone(node);
  StepEffects::Fields fields = {
      {"node", node.id.value()},
      {"why", done ? absl::StrCat("done, ", loss.why) : loss.why},
      {"silent_ms", absl::StrCat(absl::ToInt64Milliseconds(now_ - node.proof))}};
  if (!node.stream) {
    fields.emplace_back("since_closed_ms",
                        absl::StrCat(absl::ToInt64Milliseconds(now_ - node.closed_at)));
  }
  effects_.AddNote(done ? "node_left" : "node_lost", std::move(fields));
  Departure departure{.state = RoundMember::State::kLost,
                      .reason = absl::StrCat(NodeText(node), " was lost (", loss.why, ")"),
                      .refusal = std::move(loss.refusal),
                      .fault = node.stream ? node.proof : node.closed_at};
  if (node.stream) EndStream(node, std::move(loss.goodbye));
  RemoveNode(node, std::move(departure));
}

// Whether the node's workers all ended well and the job doesn't need it any more (R8).
bool Job::IsDone(const Node& node) const {
  return node.group_rank && phase_ == JobPhase::kRunning &&
         round_->member(*node.group_rank).succeeded;
}

// Takes a node without a stream out of the roster and, if it is a member, out of the live
// generation.
void Job::RemoveNode(const Node& node, Departure departure) {
  const bool left = departure.state == RoundMember::State::kLeft;
  Departed record{.id = node.id,
                  .stream_number = node.stream_number,
                  .processed = node.processed,
                  .refusal = std::move(departure.refusal),
                  .left = left && phase_ != JobPhase::kEnded && !departure.reason.empty(),
                  .done_in = Generation(),
                  .done_rank = std::nullopt};
  const std::optional<uint32_t> rank = node.group_rank;
  const bool done = IsDone(node);
  if (done) {
    record.done_in = generation_;
    record.done_rank = rank;
  }
  if (phase_ != JobPhase::kEnded) {
    recorder_.Note();
    // The node may only have lost its stream, and then gets the verdict too late (R8).
    if (!left && record.refusal.ok()) farewell_.NoteLoss(now_);
  }
  NoteGone(node);
  // A node that waited for this claim can start now.
  const std::optional<uint64_t> heir = roster_.Remove(node, std::move(record));
  if (heir) standby_due_.Mark(*heir);
  if (!rank) return;
  round_->SetNode(*rank, 0);
  if (done) return;  // done is not dead (R8)
  closing_.NoteLoss(departure.reason);
  round_->SetState(*rank, departure.state);
  // The lost node won't reach the stop step, so the others need not wait for it. Agents spare
  // workers that are saving.
  if (!left) AbandonStop();
  if (phase_ != JobPhase::kRunning) return;
  BeginClosing({.reason = std::move(departure.reason),
                .name = left ? "node_left" : "node_lost",
                .fault = departure.fault});
}

}  // namespace ddprun::rendezvous
