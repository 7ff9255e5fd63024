#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job/job.h"
#include "rendezvous/core/timing.h"

// The record of a job, and how another service resumes from it (R10). A record is taken between two
// steps, so all invariants hold for it. It has the members of the live generation, and which of
// them are done or gone. Agents send their other reports again when they are back.
namespace ddprun::rendezvous {
namespace {

MemberRecord::Fate FateOf(RoundMember::State state) {
  switch (state) {
    case RoundMember::State::kLost:
      return MemberRecord::Fate::kLost;
    case RoundMember::State::kLeft:
      return MemberRecord::Fate::kLeft;
    case RoundMember::State::kRunning:
    case RoundMember::State::kStopping:
    case RoundMember::State::kStopped:
      break;
  }
  return MemberRecord::Fate::kHere;
}

RoundMember MemberOf(const MemberRecord& record) {
  return {.node_id = record.node_id,
          .worker_count = record.worker_count,
          .placement = {.base_rank = record.base_rank,
                        .base_role_rank = record.base_role_rank,
                        .role_world_size = record.role_world_size}};
}

}  // namespace

// ------------------------------------------------------------- to a record

JobRecord Job::TakeRecord(Instant now) {
  roster_.ChangeAll([](Node& node) { node.TakeForRecord(); });
  JobRecord record{.term = gate_.term(),
                   .life = recovery_.life(),
                   .spec = gate_.open() ? std::optional(spec()) : std::nullopt,
                   .generation = generation_,
                   .reason = reason_,
                   .begun_step = record_.begun_step(),
                   .history = closing_.history(),
                   .taken = preemption_.taken(),
                   .takes_service = preemption_.takes_service(),
                   .forming = forming_.ToRecord(now),
                   .growth = growth_.ToRecord(),
                   .blame = blame_.ToRecord(now),
                   .drained = drains_.nodes(),
                   .generations = record_.ToRecord(now),
                   .ledger = ledger_.ToRecord(now)};
  RecordNodes(record);
  if (farewell_.begun()) record.verdict = farewell_.verdict();
  if (!round_) return record;
  record.round = RecordRound();
  record.round->age = now - round_->formed();
  record.round->closing = closing_.ToRecord(now);
  return record;
}

void Job::RecordNodes(JobRecord& record) const {
  for (const auto& [order, node] : roster_.nodes()) {
    record.nodes.push_back({.id = node.id,
                            .incarnation = node.incarnation,
                            .info = node.info,
                            .stream_number = node.stream_number,
                            .settled = node.recording,
                            .draining = node.draining,
                            .answered = node.answered});
  }
  for (const uint64_t incarnation : roster_.table().departed()) {
    const Departed* departed = roster_.table().FindDeparted(Incarnation(incarnation));
    record.departed.push_back({*departed, Incarnation(incarnation)});
  }
}

RoundRecord Job::RecordRound() const {
  std::map<uint64_t, uint32_t> index;  // in JobRecord::nodes, by join order
  for (const auto& [order, node] : roster_.nodes()) {
    index.emplace(order, static_cast<uint32_t>(index.size()));
  }
  RoundRecord record{.age = {}, .members = {}, .terms = round_->terms(), .closing = {}};
  for (const RoundMember& member : round_->members()) {
    record.members.push_back({.node = {},
                              .node_id = member.node_id,
                              .worker_count = member.worker_count,
                              .base_rank = member.placement.base_rank,
                              .base_role_rank = member.placement.base_role_rank,
                              .role_world_size = member.placement.role_world_size,
                              .fate = FateOf(member.state),
                              .started = member.started,
                              .succeeded = member.succeeded});
    if (member.node_order != 0) record.members.back().node = index.at(member.node_order);
  }
  return record;
}

// ------------------------------------------------------------- and back

Job::Job(Instant now, JobRecord record, absl::Duration elapsed, std::string token)
    : now_(now),
      forgiven_until_(now),
      reason_(record.reason),
      generation_(record.generation),
      gate_(record.term, std::move(token)),
      probes_(record.life),
      preemption_(record.life),
      recorder_(/*keeps=*/true, /*recorded=*/true) {
  Age(elapsed, record);
  gate_.Recover(record.spec);
  blame_.SetRules(spec().restart);
  blame_.Recover(now, record.blame);
  for (const DrainedNode& each : record.drained) drains_.Add(each);
  forming_.Recover(now, record.forming);
  growth_.Recover(record.growth);
  preemption_.Recover(record.taken, record.takes_service);
  std::optional<ClosingRecord> closing;
  if (record.round) closing = record.round->closing;
  closing_.Recover(now, record.history, closing);
  record_.Recover(now, record.generations, record.begun_step);
  std::vector<uint64_t> orders;
  const uint64_t vanished = RecoverNodes(record, orders);
  std::optional<Instant> formed;
  if (record.round) {
    RecoverRound(*record.round, orders);
    formed = round_->formed();
    cost_.Begin(*formed);
  }
  if (record.spec) {
    ledger_.Recover(now, record.ledger, formed,
                    closing ? std::optional(closing_.began()) : std::nullopt,
                    record.verdict.has_value(), round_ ? round_->members().size() : 0);
  }
  std::set<uint64_t> awaited(orders.begin(), orders.end());
  if (record.verdict) {
    const Audience audience = AudienceOf(roster_.nodes());
    phase_ = JobPhase::kEnded;
    roster_.Retire();
    farewell_.Begin(now, *std::move(record.verdict), audience);
    awaited.clear();
  }
  recovery_.Begin(now, record.life, std::move(awaited), vanished);
  BoundVanished();
}

// Params: orders: gets the nodes' join orders, in the record's order. Returns the join order of the
// vanished node; 0 = there is none.
uint64_t Job::RecoverNodes(const JobRecord& record, std::vector<uint64_t>& orders) {
  uint64_t vanished = 0;
  for (const DepartedRecord& each : record.departed) {
    roster_.AddDeparted(each.incarnation, each);
  }
  // Agents look for their service at least as often as this.
  const absl::Duration lease =
      std::max(ProbePace(spec().lease, record.nodes.size()).lease, kRecoveryLease);
  for (const NodeRecord& each : record.nodes) {
    const Node& node = roster_.Add(each.id, each.incarnation, each.info);
    roster_.Change(node, [&](Node& n) { n.Recover(each, now_, lease); });
    orders.push_back(node.order);
    if (!record.vanished.value().empty() && each.id == record.vanished) vanished = node.order;
  }
  return vanished;
}

void Job::RecoverRound(const RoundRecord& record, const std::vector<uint64_t>& orders) {
  std::vector<RoundMember> members;
  for (const MemberRecord& each : record.members) members.push_back(MemberOf(each));
  round_.emplace(generation_, now_ - record.age, std::move(members), record.terms);
  phase_ = record.closing ? JobPhase::kClosing : JobPhase::kRunning;
  for (uint32_t rank = 0; rank < record.members.size(); ++rank) {
    const MemberRecord& each = record.members[rank];
    round_->SetConnected(rank, false);
    if (each.started) round_->SetStarted(rank);
    if (each.succeeded) round_->SetSucceeded(rank, now_);
    if (each.fate == MemberRecord::Fate::kLost) {
      round_->SetState(rank, RoundMember::State::kLost);
    } else if (each.fate == MemberRecord::Fate::kLeft) {
      round_->SetState(rank, RoundMember::State::kLeft);
    }
    if (!each.node) continue;
    const uint64_t order = orders.at(*each.node);
    round_->SetNode(rank, order);
    roster_.Change(*roster_.table().FindByOrder(order), [&](Node& n) { n.BecomeMember(rank); });
  }
}

void Job::NotifyRecovery() {
  effects_.AddNote("recovering", {{"phase", PhaseName(phase_)},
                                  {"generation", absl::StrCat(generation_.value())},
                                  {"nodes", absl::StrCat(recovery_.awaited().size())},
                                  {"life", absl::StrCat(recovery_.life())}});
}

// A vanished node gets kVanishedLease when all others are back, and no more. The others show how
// long the way takes that it would have to come, too: by etcd, on machines with other work.
void Job::BoundVanished() {
  const Node* node = roster_.table().FindByOrder(recovery_.vanished());
  if (node == nullptr) return;
  roster_.Change(*node, [this](Node& n) { n.BoundLease(now_ + kVanishedLease); });
}

void Job::NoteBack(const Node& node) {
  if (!recovery_.awaited().contains(node.order)) return;
  if (recovery_.NoteBack(node.order)) EndRecovery();
  BoundVanished();
}

void Job::NoteGone(const Node& node) {
  if (!recovery_.awaited().contains(node.order)) return;
  if (recovery_.NoteGone(node.order)) EndRecovery();
  BoundVanished();
}

// All recorded nodes are back or lost: the job resumes.
void Job::EndRecovery() {
  effects_.AddNote("recovered",
                   {{"back", absl::StrCat(recovery_.back())},
                    {"gone", absl::StrCat(recovery_.gone())},
                    {"ms", absl::StrCat(absl::ToInt64Milliseconds(recovery_.Age(now_)))}});
  standby_due_.MarkAll();
  if (phase_ == JobPhase::kForming) EndPreempted();
}

// The agent knows a generation that the record doesn't: the journal had failed, and its record is
// outdated.
absl::Status Job::CheckNotAhead(const AgentMessage& message) const {
  const bool ahead = message.term == gate_.term() && message.generation > generation_;
  if (recovery_.life() == 0 || !ahead) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      "this agent takes part in generation ", message.generation.value(),
      ", but the record from which the service was started again ends with generation ",
      generation_.value(), ": it could not be kept up to date. Start all nodes anew"));
}

}  // namespace ddprun::rendezvous
