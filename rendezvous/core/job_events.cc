#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/progress_page.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/timing.h"

// What nodes report, and their loss (R1, R4, R5, R6, R8).
namespace ddprun::rendezvous {
namespace {

std::string MessageName(const AgentMessage& message) {
  static constexpr const char* kNames[] = {
      "Join",         "Renewal", "Heartbeat",  "WorkersStarted", "WorkerFailed", "GroupSucceeded",
      "GroupStopped", "Leave",   "HangReport", "Preempt",        "StopPrepared"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(AgentMessage::body)>);
  return kNames[message.body.index()];
}

std::string NodeText(const Node& node) {
  return node.id.value() == node.info.hostname
             ? absl::StrCat("node ", node.id.value())
             : absl::StrCat("node ", node.id.value(), " on ", node.info.hostname);
}

}  // namespace

void Job::OnMessage(Node& node, const AgentMessage& message) {
  absl::Status status = CheckTerm(term_, message);
  if (message.run_id != spec_.run_id || message.node_id != node.id ||
      message.incarnation != node.incarnation || message.stream != node.stream_number) {
    status = absl::InvalidArgumentError(
        "a message that doesn't belong to its stream: run id, node id, incarnation and stream "
        "number must stay those of the Join");
  } else if (std::holds_alternative<Join>(message.body)) {
    status = absl::InvalidArgumentError("a second Join on one stream");
  }
  if (!status.ok()) return BreakOff(node, std::move(status));
  if (const Renewal* renewal = std::get_if<Renewal>(&message.body))
    return OnRenewal(node, *renewal, message.generation);
  if (TakeSequence(node, message)) OnEvent(node, message);
}

// Ends the stream of a node that broke the protocol. It may come back within its grace.
void Job::BreakOff(Node& node, absl::Status status) {
  AddNote("node_refused", {{"node", node.id.value()}, {"why", std::string(status.message())}});
  CloseNodeStream(node, std::move(status));
  node.closed_at = now_;
  node.grace_end = now_ + spec_.reconnect_grace;
  node.standby.reset();
  Refresh(node);
}

// Each event is processed once (R6). False: not this one.
bool Job::TakeSequence(Node& node, const AgentMessage& message) {
  if (message.sequence == node.processed + 1) {
    node.processed = message.sequence;
    return true;
  }
  if (message.sequence != 0 && message.sequence <= node.processed) return false;
  BreakOff(node, absl::InvalidArgumentError(absl::StrCat("event ", message.sequence, " came after ",
                                                         node.processed,
                                                         ": events of an agent count up by one")));
  return false;
}

void Job::OnRenewal(Node& node, const Renewal& renewal, Generation generation) {
  const std::optional<Instant> sent = probes_.SentAt(renewal.nonce);
  if (!sent || phase_ == Phase::kEnded) return;
  node.heard = now_;
  TakeProgress(node, renewal, generation);
  TakeGpus(node, renewal.gpus);
  node.proof = std::max(node.proof, *sent);
  node.lease_end = std::max(node.lease_end, *sent + spec_.lease);
  if (node.idle_nonce != 0 && renewal.nonce >= node.idle_nonce) {
    node.idle_nonce = 0;
    const bool awaited = phase_ == Phase::kClosing && node.group_rank &&
                         round_->member(*node.group_rank).state == RoundMember::State::kStopping;
    if (awaited) {
      round_->SetState(*node.group_rank, RoundMember::State::kStopped);
      node.stop_bound = Instant::Infinite();
    }
  }
  Refresh(node);
  RefuseRivals(node);
}

// That a GPU is lost is told once: a worker on it hangs, or ends by an error that names none.
void Job::TakeGpus(Node& node, const std::vector<GpuUse>& gpus) {
  if (gpus.empty()) return;
  for (const GpuUse& gpu : gpus) {
    const bool was_lost = std::any_of(node.gpus.begin(), node.gpus.end(), [&](const GpuUse& old) {
      return old.index == gpu.index && old.lost;
    });
    if (gpu.lost && !was_lost) {
      AddNote("gpu_lost", {{"node", node.id.value()}, {"gpu", absl::StrCat(gpu.index)}});
    }
  }
  node.gpus = gpus;
  node.gpus_at = now_;
}

// Renewals over connections for heartbeats tell none.
void Job::TakeProgress(Node& node, const Renewal& renewal, Generation generation) {
  if (renewal.progress.empty() || generation != generation_ || !node.group_rank) return;
  node.progress = renewal.progress;
  node.progress.resize(std::min<size_t>(node.progress.size(), node.info.worker_count));
  node.step_time = renewal.step_time;
  node.progress_at = now_;
  for (const uint64_t word : node.progress) {
    if (word != 0) SawStep(ProgressStepOf(word));
  }
  TakeTime(node, renewal.time, /*done=*/false);
}

void Job::TakeTime(const Node& node, const std::optional<NodeTime>& time, bool done) {
  if (time.has_value()) ledger_.Tell(now_, *node.group_rank, *time, done);
}

void Job::SawStep(uint64_t step) {
  record_.SawStep(step);
  highest_step_ = std::max(highest_step_, step);
}

void Job::OnEvent(Node& node, const AgentMessage& message) {
  if (phase_ == Phase::kEnded) return Ignore(node, message, "the job has ended");
  if (const Leave* leave = std::get_if<Leave>(&message.body)) return OnLeave(node, *leave);
  if (node.cleaning != Generation()) {
    const GroupStopped* stopped = std::get_if<GroupStopped>(&message.body);
    if (stopped != nullptr && message.generation == node.cleaning) return OnCleaned(node, *stopped);
  }
  if (!node.group_rank || message.generation != generation_) {
    return Ignore(node, message,
                  absl::StrCat("generation ", message.generation.value(), " is not current"));
  }
  const bool stopped = round_->member(*node.group_rank).state == RoundMember::State::kStopped;
  if (stopped && !std::holds_alternative<Preempt>(message.body))
    return Ignore(node, message, "its workers were stopped already");
  std::visit(
      [&](const auto& report) {
        if constexpr (requires { OnReport(node, report); }) OnReport(node, report);
      },
      message.body);
}

void Job::Ignore(const Node& node, const AgentMessage& message, const std::string& why) {
  AddNote("ignored", {{"node", node.id.value()}, {"message", MessageName(message)}, {"why", why}});
}

void Job::OnCleaned(Node& node, const GroupStopped& stopped) {
  if (!stopped.clean) return LoseNode(node, LossWhy::kUnclean);
  node.cleaning = Generation();
  node.stop_bound = Instant::Infinite();
  node.info.master_port = stopped.master_port;
  standby_due_.push_back(node.order);
  Refresh(node);
}

void Job::OnReport(Node& node, const WorkersStarted& /*started*/) {
  if (round_->SetStarted(*node.group_rank)) {
    AddNote("started", {{"generation", absl::StrCat(generation_.value())}});
  }
}

// Notes a failure under the sender's name, whatever the message says. False: no such worker.
bool Job::AddFailure(const Node& node, WorkerFailure failure) {
  const RoundMember& member = round_->member(*node.group_rank);
  if (failure.local_rank >= member.worker_count) return false;
  failure.rank = member.placement.base_rank + failure.local_rank;
  failure.node_id = node.id;
  failure.hostname = node.info.hostname;
  failure.generation = generation_;
  failure.message = Bounded(std::move(failure.message), kTextBytesMax);
  failure.stderr_tail = Bounded(std::move(failure.stderr_tail), kTextBytesMax);
  failure.traceback = Bounded(std::move(failure.traceback), kTracebackBytesMax);
  round_->AddFailure(std::move(failure), now_);
  return true;
}

void Job::OnReport(Node& node, const WorkerFailed& failed) {
  if (!AddFailure(node, failed.failure)) return;
  if (phase_ == Phase::kClosing) AbandonStop();
  if (phase_ != Phase::kRunning) return;
  // A worker that hangs did so since its last mark.
  fault_ = failed.failure.hung ? Instant() : std::min(now_, SilentSince());
  BeginClosing(FailureText(round_->failures().front().failure), "worker_failed");
}

// The last sign of life of a member that is overdue or away: what fails elsewhere may be its fault.
// Infinite = all are well.
Instant Job::SilentSince() const {
  Instant since = Instant::Infinite();
  for (const RoundMember& member : round_->members()) {
    if (member.node_order == 0) continue;
    const Node& node = *nodes_.FindByOrder(member.node_order);
    if (!node.stream) {
      since = std::min(since, node.closed_at);
    } else if (now_ - node.proof > 2 * ProbeInterval(spec_.lease)) {
      since = std::min(since, node.proof);
    }
  }
  return since;
}

void Job::OnReport(Node& node, const GroupSucceeded& succeeded) {
  TakeTime(node, succeeded.time, /*done=*/true);
  round_->SetSucceeded(*node.group_rank);
  if (round_->all_succeeded()) {
    return EndJob(Outcome::kSucceeded, Rule::kAllSucceeded,
                  absl::StrCat("every rank of generation ", generation_.value(), " ended with 0"));
  }
  // It ended before the stop step; the others' nodes settle when they have reached theirs.
  if (phase_ == Phase::kClosing && stop_.committed()) return SendStop(node);
  CarryOut(stop_.Drop(now_, *node.group_rank));
}

void Job::OnReport(Node& node, const GroupStopped& stopped) {
  for (const WorkerFailure& failure : stopped.failures) AddFailure(node, failure);
  round_->AddStep(stopped.step);
  if (stopped.step) SawStep(*stopped.step);
  TakeTime(node, stopped.time, /*done=*/false);
  if (!stopped.clean) return LoseNode(node, LossWhy::kUnclean);
  round_->SetState(*node.group_rank, RoundMember::State::kStopped);
  node.info.master_port = stopped.master_port;
  node.stop_bound = Instant::Infinite();
  Refresh(node);
  if (phase_ != Phase::kRunning) return;
  BeginClosing(round_->failures().empty()
                   ? absl::StrCat("the workers of ", NodeText(node), " were stopped there")
                   : FailureText(round_->failures().front().failure),
               "group_stopped");
}

void Job::OnLeave(Node& node, const Leave& leave) {
  AddNote("node_left", {{"node", node.id.value()}, {"why", leave.reason}});
  if (leave.end_job) {
    return EndJob(leave.preempted ? Outcome::kPreempted : Outcome::kStopped,
                  leave.preempted ? Rule::kPreempted : Rule::kStopped,
                  absl::StrCat(node.info.hostname, " left: ", leave.reason));
  }
  const std::string reason = absl::StrCat(NodeText(node), " left: ", leave.reason);
  const bool was_member = node.group_rank.has_value();
  CloseNodeStream(node, absl::OkStatus());
  RemoveNode(node, RoundMember::State::kLeft, reason, absl::OkStatus());
  if (!leave.preempted || (!was_member && phase_ != Phase::kForming)) return;
  NotePreempted(reason);
  if (phase_ == Phase::kForming) EndPreempted();
}

// ------------------------------------------------------------- loss

void Job::Expire(Node& node) {
  if (phase_ == Phase::kEnded) {
    return RemoveNode(node, RoundMember::State::kLost, "", absl::OkStatus());
  }
  if (now_ >= node.grace_end) return LoseNode(node, LossWhy::kStreamClosed);
  if (now_ >= node.lease_end) return LoseNode(node, LossWhy::kLeaseExpired);
  if (now_ >= node.stop_bound) return LoseNode(node, LossWhy::kUnclean);
  Refresh(node);
}

void Job::LoseNode(Node& node, LossWhy why) {
  std::string text;
  absl::Status refusal;  // for later joins of this agent process
  absl::Status goodbye;  // for the stream that is open
  switch (why) {
    case LossWhy::kStreamClosed:
      text = "stream closed";
      break;
    case LossWhy::kLeaseExpired:
      text = "lease expired";
      goodbye = absl::UnavailableError(
          absl::StrCat("this agent was silent for longer than the lease of ",
                       DurationText(spec_.lease), " and counts as lost: join again"));
      break;
    case LossWhy::kUnclean:
      text = "unclean";
      goodbye = absl::AbortedError(
          absl::StrCat(NodeText(node), " couldn't end its processes of an old generation within ",
                       DurationText(spec_.stop_grace + kStopSlack),
                       ": end them by hand, then start ddprun there again"));
      refusal = goodbye;
      break;
    case LossWhy::kSuperseded:
      text = "a new agent took its place";
      goodbye = absl::AbortedError("a newer agent of this node took its place");
      refusal = goodbye;
      break;
  }
  Fields fields = {{"node", node.id.value()},
                   {"why", IsDone(node) ? absl::StrCat("done, ", text) : text},
                   {"silent_ms", absl::StrCat(absl::ToInt64Milliseconds(now_ - node.proof))}};
  if (!node.stream) {
    fields.emplace_back("since_closed_ms",
                        absl::StrCat(absl::ToInt64Milliseconds(now_ - node.closed_at)));
  }
  // Done is not dead (R8): whether it is missed shows later.
  AddNote(IsDone(node) ? "node_left" : "node_lost", std::move(fields));
  const std::string reason = absl::StrCat(NodeText(node), " was lost (", text, ")");
  if (phase_ == Phase::kRunning) fault_ = node.stream ? node.proof : node.closed_at;
  if (node.stream) CloseNodeStream(node, goodbye);
  RemoveNode(node, RoundMember::State::kLost, reason, std::move(refusal));
  fault_.reset();  // the loss of a spare ends no round, and explains no later one
}

// Whether its workers all ended well and nobody needs it any more (R8).
bool Job::IsDone(const Node& node) const {
  return node.group_rank && phase_ == Phase::kRunning && round_->member(*node.group_rank).succeeded;
}

// Takes a node without a stream out of the table and, if it is a member, out of the live
// generation.
void Job::RemoveNode(Node& node, RoundMember::State member_state, const std::string& reason,
                     absl::Status refusal) {
  Refresh(node);
  deadlines_.Set(node.order, Instant::Infinite());
  Departed record{.id = node.id,
                  .stream_number = node.stream_number,
                  .processed = node.processed,
                  .refusal = std::move(refusal),
                  .left = member_state == RoundMember::State::kLeft && phase_ != Phase::kEnded &&
                          !reason.empty(),
                  .done_in = Generation(),
                  .done_rank = std::nullopt};
  const std::optional<uint32_t> rank = node.group_rank;
  const std::optional<uint32_t> claim = node.info.node_rank;
  const bool done = IsDone(node);
  if (done) {
    record.done_in = generation_;
    record.done_rank = rank;
  }
  nodes_.Remove(node, std::move(record));
  if (claim) {  // whoever waited for this claim can start now
    const std::vector<uint64_t> heirs = nodes_.Claimants(*claim);
    if (!heirs.empty()) {
      standby_due_.push_back(heirs.front());
      Refresh(*nodes_.FindByOrder(heirs.front()));
    }
  }
  if (!rank || !round_) return;
  round_->SetNode(*rank, 0);
  if (done) return;  // done is not dead (R8)
  if (loss_reason_.empty()) loss_reason_ = reason;
  round_->SetState(*rank, member_state);
  if (member_state == RoundMember::State::kLost) AbandonStop();
  if (phase_ == Phase::kRunning) {
    BeginClosing(reason, member_state == RoundMember::State::kLeft ? "node_left" : "node_lost");
  }
}

}  // namespace ddprun::rendezvous
