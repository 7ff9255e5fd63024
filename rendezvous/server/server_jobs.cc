#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/server/server_impl.h"

// Finds, creates, recovers and forgets jobs.
namespace ddprun::rendezvous {
namespace {

// How long the streams of an ended job may take to be done, after the core's own farewell.
constexpr absl::Duration kLinger = absl::Seconds(1);

// The text about an ended job for late nodes.
std::string EndText(const JobShell& job) {
  return absl::StrCat("the job '", job.run_id(), "' has ended (", job.View().reason,
                      "); to run it again, start all nodes anew");
}

}  // namespace

// Errors: ALREADY_EXISTS — this service is for another job.
absl::Status ServerImpl::CheckRunId(const std::string& run_id) const {
  if (options_.only_run_id.empty() || run_id == options_.only_run_id) return absl::OkStatus();
  const auto job = jobs_.find(options_.only_run_id);
  const std::string description = job == jobs_.end() ? "" : job->second->View().spec.description;
  return absl::AlreadyExistsError(absl::StrCat(
      "this rendezvous service is for run id '", options_.only_run_id, "' alone",
      description.empty() ? "" : absl::StrCat(" (", description, ")"), ", not for '", run_id,
      "': give all nodes of one job the same --rdzv_id, or this job another port"));
}

// The job that a Join is for; created by its first Join.
absl::StatusOr<JobShell*> ServerImpl::FindJob(const AgentMessage& message, const Join& join) {
  // Checked here as well as in the core: without the token, no caller makes this service hold a job
  // or learns which one it holds.
  DDPRUN_RETURN_IF_ERROR(CheckToken(options_.token, join));
  DDPRUN_RETURN_IF_ERROR(CheckRunId(message.run_id));
  const auto found = jobs_.find(message.run_id);
  if (found != jobs_.end()) {
    if (!found->second->ended()) return found->second.get();
    return absl::AbortedError(EndText(*found->second));
  }
  DDPRUN_RETURN_IF_ERROR(CheckTerm(term_, message));
  if (jobs_.size() >= kJobsMax) {
    return absl::ResourceExhaustedError(absl::StrCat("this rendezvous service holds ", jobs_.size(),
                                                     " jobs, its most: start another service"));
  }
  auto& job = jobs_[message.run_id];
  job = std::make_unique<JobShell>(loop_, events_, journal_.get(), this, message.run_id, term_,
                                   options_.token);
  return job.get();
}

// Resumes the jobs; their leases count from now.
void ServerImpl::RecoverJobs() {
  for (KeptJob& kept : std::exchange(options_.kept, {})) {
    if (!CheckRunId(kept.run_id).ok()) continue;
    auto& job = jobs_[kept.run_id];
    job = std::make_unique<JobShell>(loop_, events_, journal_.get(), this, std::move(kept),
                                     options_.token);
    job->Step(TimerDue{});
  }
}

void ServerImpl::OnRecordStale(JobShell* /*job*/, const std::string& why) {
  if (options_.on_record_stale) options_.on_record_stale(why);
}

void ServerImpl::OnJobEnded(JobShell* job, Outcome outcome) {
  ++ended_[outcome];
  // Later, because the job is still on the stack. Its open streams have a moment to end.
  auto& timer = lingering_[job->run_id()];
  timer = std::make_unique<Timer>(loop_, [this, run_id = job->run_id()] { ForgetJob(run_id); });
  timer->Arm(loop_->Now() + (job->streams().empty() ? absl::ZeroDuration() : kLinger));
}

// Forgets a job that has ended and has no streams, or had its only Join refused.
void ServerImpl::ForgetIfDone(JobShell* job) {
  if (!job->streams().empty()) return;
  if (job->ended()) return ForgetJob(std::string(job->run_id()));
  const JobView view = job->View();
  const bool never_joined = view.generation == Generation() && view.spec.run_id.empty();
  if (never_joined) jobs_.erase(std::string(job->run_id()));
}

void ServerImpl::ForgetJob(const std::string& run_id) {
  const auto found = jobs_.find(run_id);
  if (found == jobs_.end()) return;
  for (const StreamKey key : found->second->streams()) {
    StreamEntry& entry = streams_.at(key);
    EndHeartbeats(entry);
    entry.job = nullptr;
    entry.stream->Close(absl::OkStatus(), /*flush=*/false);
  }
  // The argument may belong to the object that is destroyed here.
  const std::string ended_id = run_id;  // NOLINT(performance-unnecessary-copy-initialization)
  const std::string how = EndText(*found->second);
  jobs_.erase(found);
  lingering_.erase(ended_id);
  if (ended_id == options_.only_run_id && options_.on_only_job_ended) {
    const auto on_ended = options_.on_only_job_ended;  // it may destroy us
    on_ended(how);
  }
}

}  // namespace ddprun::rendezvous
