#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/views.h"
#include "rendezvous/server/server_impl.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/status_pages.h"
#include "rendezvous/wire/training.h"

// The calls of `ddprun status`, `stop`, `drain` and `events`.
namespace ddprun::rendezvous {
namespace {

constexpr size_t kNamesShownMax = 3;

// The consequences for the job without the node, for people.
std::string DrainText(const JobView& view, const NodeView& node) {
  uint32_t left = 0;
  for (const NodeView& other : view.nodes) {
    const bool stays = other.state != "draining" && other.state != "unreachable";
    if (stays && other.node_id != node.node_id) ++left;
  }
  std::string leaves =
      absl::StrCat("node ", node.node_id.value(), " on ", node.info.hostname,
                   node.state == "draining" ? " is leaving already" : " leaves", "; ",
                   CountText(left, "node"), left == 1 ? " is" : " are", " left");
  if (left >= view.spec.nodes_min) return leaves;
  return absl::StrCat(leaves, " of at least ", view.spec.nodes_min, ": the job waits up to ",
                      DurationText(view.spec.join_timeout), " for a replacement");
}

}  // namespace

// "2: 'job7', 'job8'".
std::string ServerImpl::JobNames() const {
  std::vector<std::string> names;
  for (const auto& [name, job] : jobs_) {
    if (names.size() == kNamesShownMax) break;
    names.push_back(absl::StrCat("'", name, "'"));
  }
  return absl::StrCat(jobs_.size(),
                      names.empty() ? "" : absl::StrCat(": ", absl::StrJoin(names, ", ")),
                      names.size() < jobs_.size() ? ", …" : "");
}

absl::Status ServerImpl::NoSuchJob(const std::string& run_id) const {
  return absl::NotFoundError(absl::StrCat("no job with the run id '", run_id,
                                          "' is here; this service holds ", JobNames()));
}

bool ServerImpl::MayRead(const std::string& token, const std::string& peer) const {
  return options_.token.empty() || IsLocalPeer(peer) || SameSecret(options_.token, token);
}

bool ServerImpl::IsTrusted(const std::string& token, const std::string& peer) const {
  if (IsOwnerPeer(peer)) return true;
  return options_.token.empty() ? IsLocalPeer(peer) : SameSecret(options_.token, token);
}

// Errors: UNAUTHENTICATED: not the job's token, from another machine.
absl::Status ServerImpl::CheckRead(const std::string& token, const std::string& peer) {
  if (MayRead(token, peer)) {
    if (!options_.token.empty() && SameSecret(options_.token, token)) Known(peer);
    return absl::OkStatus();
  }
  absl::Status status = absl::UnauthenticatedError(
      "wrong or missing token of the job (--token_file, DDPRUN_TOKEN); without it a job with a "
      "token is read only from the machine of its rendezvous service");
  refusals_.Count(loop_->Now(), "read_without_token", peer, status);
  return status;
}

absl::StatusOr<StatusBoard::Snapshot> ServerImpl::OnGetStatus(const v1::GetStatusRequest& request,
                                                              const std::string& peer) {
  DDPRUN_RETURN_IF_ERROR(CheckRead(request.token(), peer));
  if (!request.run_id().empty() && !jobs_.contains(request.run_id())) {
    return NoSuchJob(request.run_id());
  }
  if (StatusBoard::Snapshot fresh = board_->Fresh(MonotonicNow());
      fresh != nullptr && HasJob(*fresh, request.run_id())) {
    return fresh;
  }
  const absl::Duration began = ThreadTime();
  auto reply = std::make_shared<v1::GetStatusReply>();
  reply->set_term(term_.value());
  reply->set_release(kVersion);
  for (const auto& [outcome, jobs] : ended_) {
    v1::EndedCount* count = reply->add_jobs_ended();
    count->set_outcome(OutcomeName(outcome));
    count->set_jobs(jobs);
  }
  size_t history_bytes = 0;
  for (const auto& [run_id, job] : jobs_) {
    v1::JobStatus* status = reply->add_jobs();
    *status = ToProto(job->View());
    AddReports(*job, status);
    // A reply has a bound: jobs beyond it are shown without their generations.
    if (history_bytes > kMessageBytesMax / 4) continue;
    for (const GenerationView& generation : job->generations()) {
      v1::GenerationStatus* told = status->add_history();
      *told = ToProto(generation, loop_->Now());
      history_bytes += told->ByteSizeLong();
    }
  }
  board_->Put(reply, MonotonicNow(), ThreadTime() - began);
  return reply;
}

// Reports of an earlier generation are those of workers that are gone.
void ServerImpl::AddReports(JobShell& job, v1::JobStatus* status) const {
  std::map<std::string, const TrainingReport*> reports;
  for (const StreamKey key : job.streams()) {
    const auto found = streams_.find(key);
    if (found == streams_.end()) continue;
    const Report& report = found->second.report;
    const bool is_live = report.generation.value() == status->generation();
    if (!is_live || report.training == TrainingReport()) continue;
    reports[report.node_id.value()] = &report.training;
  }
  if (reports.empty()) return;
  for (v1::NodeStatus& node : *status->mutable_nodes()) {
    const auto found = reports.find(node.node_id());
    if (found != reports.end() && node.workers_size() > 0) {
      *node.mutable_training() = ToProto(*found->second);
    }
  }
}

// Errors: PERMISSION_DENIED: there is no token, and the caller is on another machine.
// UNAUTHENTICATED: not the job's token. RESOURCE_EXHAUSTED: the reason is too long.
absl::Status ServerImpl::CheckControl(const std::string& what, const std::string& token,
                                      const std::string& reason, const std::string& peer) {
  if (!IsTrusted(token, peer) && options_.token.empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat("a job without a token is ", what == "drain" ? "drained" : "stopped",
                     " only from the machine of its rendezvous service, not from ", PeerHost(peer),
                     ": run the command there, or start jobs with a token"));
  }
  if (!IsTrusted(token, peer)) {
    absl::Status status = absl::UnauthenticatedError(
        "wrong or missing token of the job (--token_file, DDPRUN_TOKEN); only its owner, on the "
        "machine of its rendezvous service, needs none");
    refusals_.Count(loop_->Now(), absl::StrCat(what, "_without_token"), peer, status);
    return status;
  }
  if (reason.size() > kTextBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "reason: has ", reason.size(), " bytes, at most ", kTextBytesMax, " are taken"));
  }
  Known(peer);
  return absl::OkStatus();
}

// The job called `run_id`; "" = the only one. Errors: NOT_FOUND. INVALID_ARGUMENT: "", and there
// are several.
absl::StatusOr<JobShell*> ServerImpl::JobOf(const std::string& run_id) const {
  if (run_id.empty() && jobs_.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("which job? This service holds ", JobNames(), "; name one with --rdzv_id"));
  }
  const auto found = run_id.empty() ? jobs_.begin() : jobs_.find(run_id);
  if (found == jobs_.end()) return NoSuchJob(run_id);
  return found->second.get();
}

// JobOf() among the jobs that haven't ended.
absl::StatusOr<JobShell*> ServerImpl::LiveJob(const std::string& run_id) const {
  DDPRUN_ASSIGN_OR_RETURN(JobShell * job, JobOf(run_id));
  if (job->ended()) return NoSuchJob(run_id);
  return job;
}

absl::Status ServerImpl::OnStopJob(const v1::StopJobRequest& request, const std::string& peer) {
  DDPRUN_RETURN_IF_ERROR(CheckControl("stop", request.token(), request.reason(), peer));
  DDPRUN_ASSIGN_OR_RETURN(JobShell * job, LiveJob(request.run_id()));
  job->Step(StopRequested{request.reason().empty() ? "stopped on request" : request.reason()});
  return absl::OkStatus();
}

absl::Status ServerImpl::OnDrainNode(const v1::DrainNodeRequest& request, const std::string& peer,
                                     v1::DrainNodeReply* reply) {
  DDPRUN_RETURN_IF_ERROR(CheckControl("drain", request.token(), request.reason(), peer));
  DDPRUN_ASSIGN_OR_RETURN(JobShell * job, LiveJob(request.run_id()));
  const JobView view = job->View();
  reply->set_after(job->ring()->last());
  if (request.undo()) {
    DDPRUN_ASSIGN_OR_RETURN(const DrainedNode* drained, FindDrained(view, request.node()));
    reply->set_node_id(drained->node_id.value());
    reply->set_hostname(drained->hostname);
    reply->set_text(absl::StrCat(drained->hostname, " may join again: start ddprun there"));
    job->Step(DrainRequested{.node = drained->node_id, .reason = "", .undo = true});
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(const NodeView* node, FindNode(view, request.node()));
  if (node->info.hosts_service) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", node->node_id.value(),
                     " has the rendezvous service, without which the job can't go on: end the job "
                     "with ddprun stop, or run the service elsewhere (ddprun rendezvous)"));
  }
  reply->set_node_id(node->node_id.value());
  reply->set_hostname(node->info.hostname);
  reply->set_text(DrainText(view, *node));
  job->Step(DrainRequested{.node = node->node_id, .reason = request.reason()});
  return absl::OkStatus();
}

void ServerImpl::OnWatchEvents(const v1::WatchEventsRequest& request, const std::string& peer,
                               const std::shared_ptr<EventWatch>& watch) {
  if (const absl::Status status = CheckRead(request.token(), peer); !status.ok()) {
    return watch->FinishNow(status);
  }
  const absl::StatusOr<JobShell*> job = JobOf(request.run_id());
  if (!job.ok()) return watch->FinishNow(job.status());
  watch->Begin((*job)->run_id(), (*job)->ring(), request.after(), request.follow());
}

}  // namespace ddprun::rendezvous
