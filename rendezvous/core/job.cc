#include "rendezvous/core/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/rank_assigner.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

Job::Job(Term term, std::string token) : term_(term), token_(std::move(token)) {
  DDPRUN_CHECK(term != Term(), "a service needs a term");
}

std::vector<Effect> Job::Step(Instant now, const Event& event) {
  DDPRUN_CHECK(now >= now_, "time went back");
  effects_.clear();
  JudgeStall(now);
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  SendDueStandbys();
  return std::move(effects_);
}

void Job::On(const StopRequested& event) {
  if (phase_ != Phase::kEnded) EndJob(Outcome::kStopped, Rule::kStopped, event.reason);
}

void Job::On(const PersistDone& event) {
  if (event.status.ok() || phase_ == Phase::kEnded) return;
  EndJob(Outcome::kFailed, Rule::kNotRecorded,
         absl::StrCat("generation ", generation_.value(),
                      " can't be recorded, so a restart of the service would lose it: ",
                      event.status.ToString()));
}

void Job::On(const TimerDue& /*event*/) {
  while (const std::optional<uint64_t> order = deadlines_.PopDue(now_)) {
    Expire(*nodes_.FindByOrder(*order));
  }
  if (now_ >= tick_due_) Tick();
}

// ------------------------------------------------------------- time

Instant Job::NextDeadline() const {
  return std::min({deadlines_.Earliest(), tick_due_, PhaseDeadline()});
}

Instant Job::PhaseDeadline() const {
  switch (phase_) {
    case Phase::kForming:
      return has_spec_ ? DecideForming(spec_, FormingState()).until : Instant::Infinite();
    case Phase::kRunning:
      // Also when the end of a quarantine makes a newcomer.
      if (stop_.active()) return stop_.deadline();
      return std::min(DecideGrowth(spec_, GrowthState()).until, blame_.NextRelease(now_));
    case Phase::kClosing:
      return Instant::Infinite();  // the members have their own bounds
    case Phase::kEnded:
      return farewell_end_;
  }
  return Instant::Infinite();
}

// When we were held up ourselves, silence proves nothing (R4).
void Job::JudgeStall(Instant now) {
  const Instant due = std::max(NextDeadline(), now_);
  if (!has_spec_ || nodes_.nodes().empty() || now <= due) return;
  const absl::Duration stall = now - due;
  if (stall <= spec_.lease / 4) return;
  // What came meanwhile is read only after this step, so nothing may end before it can be.
  const auto extend = [&](Instant& end, absl::Duration least) {
    if (!end.is_infinite()) end = std::max(end + stall, now + least);
  };
  for (auto& [order, node] : nodes_.nodes()) {
    extend(node.lease_end, ProbeInterval(spec_.lease));
    extend(node.grace_end, spec_.reconnect_grace);
    extend(node.stop_bound, ProbeInterval(spec_.lease));
    node.heard = node.heard + stall;
    Refresh(node);
  }
  AddNote("stall", {{"ms", absl::StrCat(absl::ToInt64Milliseconds(stall))}});
}

void Job::Tick() {
  if (nodes_.connected() == 0 || phase_ == Phase::kEnded) {
    tick_due_ = Instant::Infinite();
    return;
  }
  tick_due_ = now_ + ProbeInterval(spec_.lease);
  const uint64_t nonce = probes_.Send(now_);
  for (const auto& [order, node] : nodes_.nodes()) {
    SendTo(node, Probe{.nonce = nonce, .processed_sequence = node.processed});
  }
  standby_due_all_ = true;
}

void Job::Refresh(Node& node) {
  const bool could_start = CouldStart(node);
  if (could_start != node.counted) {
    node.counted = could_start;
    could_start ? ++candidates_ : --candidates_;
    if (node.info.node_rank) could_start ? ++claiming_candidates_ : --claiming_candidates_;
  }
  if (node.group_rank) round_->SetConnected(*node.group_rank, node.stream.has_value());
  deadlines_.Set(node.order, std::min({node.lease_end, node.grace_end, node.stop_bound}));
}

bool Job::CouldStart(const Node& node) const {
  return node.stream && !node.draining && !node.group_rank && node.cleaning == Generation() &&
         phase_ != Phase::kEnded && nodes_.HoldsItsClaim(node);
}

FormingInput Job::FormingState() const {
  return {.cause = cause_,
          .present = candidates_,
          .now = now_,
          .began = forming_since_,
          .min_reached = min_reached_};
}

GrowthInput Job::GrowthState() const {
  return {.members = static_cast<uint32_t>(round_->members().size()),
          .newcomers = Newcomers(),
          .any_succeeded = round_->any_succeeded(),
          .now = now_,
          .newcomers_since = newcomers_since_};
}

// Candidates that a running generation could take in: not those in quarantine.
uint32_t Job::Newcomers() const {
  uint32_t count = candidates_;
  for (const NodeId& id : blame_.QuarantinedNodes(now_)) {
    const Node* node = nodes_.FindById(id);
    if (node != nullptr && node->counted) --count;
  }
  return count;
}

// Since when there are enough nodes, or newcomers.
void Job::WatchCounts() {
  const auto watch = [this](bool holds, Instant& since) {
    if (!holds) since = Instant::Infinite();
    if (holds && since.is_infinite()) since = now_;
  };
  watch(phase_ == Phase::kForming && has_spec_ && candidates_ >= spec_.nodes_min, min_reached_);
  watch(phase_ == Phase::kRunning && Newcomers() > 0, newcomers_since_);
}

// ------------------------------------------------------------- phases

void Job::Advance() {
  while (AdvanceOnce()) {
  }
}

// Takes the next step of the phases if its time has come; false when there is none to take now.
bool Job::AdvanceOnce() {
  WatchCounts();
  switch (phase_) {
    case Phase::kForming: {
      if (!has_spec_) return false;
      const FormingDecision decision = DecideForming(spec_, FormingState());
      if (decision.action == FormingDecision::Action::kWait) return false;
      if (cause_ == RoundCause::kFirst) rule_ = decision.rule;
      decision.action == FormingDecision::Action::kForm ? FormGeneration() : GiveUpForming();
      return true;
    }
    case Phase::kRunning: {
      if (stop_.active()) {  // which ends the generation anyhow
        CarryOut(stop_.OnTimer(now_));
        return phase_ != Phase::kRunning;
      }
      if (!DecideGrowth(spec_, GrowthState()).close) return false;
      const std::string reason = absl::StrCat(CountText(Newcomers(), "node"), " joined");
      for_growth_ = true;
      BeginClosing(reason, "growth");
      return true;
    }
    case Phase::kClosing:
      if (!round_->settled()) return false;
      CloseRound();
      return true;
    case Phase::kEnded:
      CheckFarewell();
      return false;
  }
  return false;
}

void Job::GiveUpForming() {
  std::vector<std::string> here;
  for (const auto& [order, node] : nodes_.nodes()) {
    if (node.counted) here.push_back(node.info.hostname);
  }
  const std::string missing = MissingText();
  EndJob(Outcome::kFailed, Rule::kJoinTimeout,
         absl::StrCat("only ", candidates_, " of ", CountText(spec_.nodes_min, "node"),
                      " came within the join timeout of ", DurationText(spec_.join_timeout),
                      cause_ == RoundCause::kFirst ? "" : absl::StrCat(" after ", cause_text_),
                      "; here: ", ListText(here),
                      missing.empty() ? "" : absl::StrCat("; missing: ", missing)));
}

// Who may be in the next generation: those in quarantine only as far as the others don't suffice.
std::vector<Candidate> Job::ChooseCandidates() {
  std::vector<Candidate> present;
  std::vector<std::optional<uint32_t>> failures;
  for (const auto& [order, node] : nodes_.nodes()) {
    if (!node.counted) continue;
    present.push_back({.node_id = node.id,
                       .join_order = order,
                       .claim = node.info.node_rank,
                       .hosts_endpoint = node.info.hosts_endpoint});
    failures.push_back(blame_.Quarantined(node.id, now_)
                           ? std::optional(blame_.Count(node.id, now_))
                           : std::nullopt);
  }
  std::vector<Candidate> chosen;
  for (const size_t index : LeaveOut(failures, spec_.nodes_min)) {
    chosen.push_back(present[index]);
    failures[index].reset();
  }
  for (size_t i = 0; i < present.size(); ++i) {
    if (!failures[i]) continue;
    AddNote("node_left_out", {{"node", present[i].node_id.value()},
                              {"failures", absl::StrCat(*failures[i])},
                              {"rule", RuleName(Rule::kQuarantine)}});
  }
  return chosen;
}

// The nodes of the next generation by group rank (R2).
std::vector<Node*> Job::ChooseNodes() {
  const std::vector<Candidate> candidates = ChooseCandidates();
  const size_t wanted = std::min<size_t>(candidates.size(), spec_.nodes_max);
  std::vector<Node*> ranked;
  for (const size_t index : AssignRanks(previous_ranks_, candidates, wanted)) {
    ranked.push_back(nodes_.FindByOrder(candidates[index].join_order));
  }
  return ranked;
}

// Makes the live round; returns its ranks as "a=[0..1] b=[2..3]".
std::string Job::MakeRound(const std::vector<Node*>& ranked) {
  std::vector<Share> shares;
  for (const Node* node : ranked) shares.push_back({node->info.worker_count, node->info.role});
  const std::vector<Placement> placements = PlaceWorkers(shares);
  std::vector<RoundMember> members(ranked.size());
  std::string ranks;
  for (size_t i = 0; i < ranked.size(); ++i) {
    const Node& node = *ranked[i];
    members[i].node_order = node.order;
    members[i].node_id = node.id;
    members[i].hostname = node.info.hostname;
    members[i].worker_count = node.info.worker_count;
    members[i].placement = placements[i];
    if (ranks.size() >= kTextBytesMax) continue;
    absl::StrAppend(&ranks, i == 0 ? "" : " ", node.id.value(), "=[", placements[i].base_rank, "..",
                    placements[i].base_rank + node.info.worker_count - 1, "]");
  }
  const uint32_t world = placements.back().base_rank + members.back().worker_count;
  generation_ = generation_.Next();
  round_.emplace(generation_, now_, world, std::move(members));
  return Bounded(std::move(ranks), kTextBytesMax);
}

void Job::FormGeneration() {
  const std::vector<Node*> ranked = ChooseNodes();
  const std::string ranks = MakeRound(ranked);
  Node& first = *ranked.front();
  master_addr_ = first.info.address;
  master_port_ = std::exchange(first.info.master_port, 0);  // used up by this generation (R11)
  store_address_ = first.info.store_address;
  assignment_reason_ = cause_ == RoundCause::kFirst
                           ? absl::StrCat(CountText(ranked.size(), "node"), " came together")
                           : cause_text_;
  phase_ = Phase::kRunning;
  reason_ = assignment_reason_;
  for_growth_ = false;
  loss_reason_.clear();
  inquiry_.Close();
  ask_again_ = Instant();
  // The stop step was marked, but is yet to be done.
  if (stop_.committed() && highest_step_ == stop_.step()) --highest_step_;
  stop_.Reset();
  ledger_.Form(now_);
  preempted_.clear();
  preempted_host_ = false;

  effects_.push_back(Persist{.generation = generation_,
                             .restart_count = history_.restart_count,
                             .restarts_charged = history_.restarts_charged,
                             .membership_changes = history_.membership_changes});
  AddNote("generation", {{"generation", absl::StrCat(generation_.value())},
                         {"world", absl::StrCat(round_->world_size())},
                         {"nodes", absl::StrCat(ranked.size())},
                         {"ranks", ranks},
                         {"reason", assignment_reason_},
                         {"rule", RuleName(rule_)},
                         {"restart_count", absl::StrCat(history_.restart_count)}});
  for (uint32_t rank = 0; rank < ranked.size(); ++rank) {
    Node& node = *ranked[rank];
    node.group_rank = rank;
    node.progress.clear();
    node.idle_nonce = 0;  // an answer to it would speak of the last generation
    node.standby.reset();
    Refresh(node);
    SendTo(node, AssignmentOf(rank));
  }
  record_.Begin({.generation = generation_,
                 .world_size = round_->world_size(),
                 .nodes = static_cast<uint32_t>(ranked.size()),
                 .reason = assignment_reason_,
                 .rule = RuleName(rule_),
                 .began = now_});
  standby_due_all_ = candidates_ > 0;
}

Assignment Job::AssignmentOf(uint32_t group_rank) const {
  const RoundMember& self = round_->member(group_rank);
  Assignment assignment;
  assignment.generation = generation_;
  assignment.restart_count = history_.restart_count;
  assignment.restarts_charged = history_.restarts_charged;
  assignment.world_size = round_->world_size();
  assignment.group_rank = group_rank;
  assignment.group_world_size = static_cast<uint32_t>(round_->members().size());
  assignment.base_rank = self.placement.base_rank;
  assignment.base_role_rank = self.placement.base_role_rank;
  assignment.role_world_size = self.placement.role_world_size;
  assignment.master_addr = master_addr_;
  assignment.master_port = master_port_;
  if (group_rank != 0) assignment.store_address = store_address_;
  for (const RoundMember& member : round_->members()) {
    if (assignment.members.size() == kMembersListedMax) break;
    assignment.members.push_back({.node_id = member.node_id,
                                  .hostname = member.hostname,
                                  .base_rank = member.placement.base_rank,
                                  .worker_count = member.worker_count});
  }
  assignment.reason = assignment_reason_;
  assignment.rule = RuleName(rule_);
  assignment.redone_to = highest_step_;
  return assignment;
}

void Job::BeginClosing(const std::string& reason, const std::string& trigger) {
  phase_ = Phase::kClosing;
  if (stop_.active()) stop_.Reset();  // something else is quicker
  reason_ = reason;
  close_reason_ = reason;
  uptime_ = now_ - round_->formed();
  record_.End(now_, reason);
  ledger_.Close(now_, std::exchange(fault_, std::nullopt));
  AddNote("round_closing", {{"generation", absl::StrCat(generation_.value())},
                            {"reason", reason},
                            {"trigger", trigger}});
  for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
    const RoundMember& member = round_->member(rank);
    if (member.gone() || member.state == RoundMember::State::kStopped) continue;
    if (member.node_order == 0) {  // it was done, so its loss did no harm until now (R8)
      AddNote("node_lost", {{"node", member.node_id.value()}, {"why", "done and gone"}});
      if (loss_reason_.empty()) {
        loss_reason_ =
            absl::StrCat("node ", member.node_id.value(), " was done and gone when ", reason);
      }
      round_->SetState(rank, RoundMember::State::kLost);
      continue;
    }
    Node& node = *nodes_.FindByOrder(member.node_order);
    if (node.stream) SendStop(node);
  }
}

// Asks a member for its stop; its bound runs from the first time (R3).
void Job::SendStop(Node& node) {
  round_->SetState(*node.group_rank, RoundMember::State::kStopping);
  const bool saves = stop_.committed() && !round_->member(*node.group_rank).succeeded;
  const absl::Duration within =
      saves ? std::max(stop_.until() - now_, absl::Milliseconds(1)) : absl::ZeroDuration();
  if (node.stop_bound.is_infinite()) {
    node.stop_bound = now_ + within + spec_.stop_grace + kStopSlack;
  }
  Refresh(node);
  if (saves) {
    return SendTo(node, CommitStop{.generation = generation_,
                                   .step = stop_.step(),
                                   .within = within,
                                   .reason = close_reason_});
  }
  SendTo(node, StopWorkers{.generation = generation_, .reason = close_reason_});
}

void Job::SendTo(const Node& node, ServiceMessage message) {
  if (node.stream) effects_.push_back(Send{.stream = *node.stream, .message = std::move(message)});
}

void Job::AddNote(std::string event, Fields fields) {
  effects_.push_back(Note{.event = std::move(event), .fields = std::move(fields)});
}

}  // namespace ddprun::rendezvous
