#include "tools/watch/commands.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/client/control_client.h"
#include "tools/watch/job_service.h"
#include "tools/watch/top_view.h"

namespace ddprun::launcher {
namespace {

using rendezvous::ServiceAddress;
using rendezvous::v1::JobStatus;

// Errors: those of FetchStatus; NOT_FOUND: no job, FAILED_PRECONDITION: several.
absl::StatusOr<JobStatus> FetchJob(const TopOptions& options, JobService& service,
                                   absl::Duration patience = JobService::kTakeover) {
  const auto fetch = [&](const ServiceAddress& address) {
    return rendezvous::FetchStatus(address, options.run_id, options.timeout, options.token,
                                   options.tls);
  };
  DDPRUN_ASSIGN_OR_RETURN(const rendezvous::v1::GetStatusReply reply, service.Ask(fetch, patience));
  if (reply.jobs_size() == 1) return reply.jobs(0);
  if (reply.jobs_size() == 0) {
    return absl::NotFoundError(
        absl::StrCat("the rendezvous service at ", service.address().name, " holds no job"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the rendezvous service at ", service.address().name, " holds ",
                   reply.jobs_size(), " jobs; name one of them with --rdzv_id: ",
                   absl::StrJoin(reply.jobs(), ", ", [](std::string* out, const JobStatus& job) {
                     absl::StrAppend(out, job.run_id());
                   })));
}

TopOrder OrderOf(char key, TopOrder now) {
  switch (key) {
    case 'r':
      return TopOrder::kRank;
    case 'b':
      return TopOrder::kStep;
    case 's':
      return TopOrder::kRate;
    case 't':
      return TopOrder::kSilent;
    default:
      return now;
  }
}

// Returns OK when the user quits, or an error when there is nothing to show any more.
absl::Status Watch(const TopOptions& options, JobService& service, JobStatus job) {
  DDPRUN_ASSIGN_OR_RETURN(const Terminal terminal, Terminal::Open());
  TopOrder order = TopOrder::kRank;
  Instant heard = MonotonicNow();
  while (true) {
    terminal.Draw(TopLines(job, service.address().name, order, terminal.Size()));
    char key = 0;
    switch (terminal.Wait(options.interval, &key)) {
      case Terminal::Wake::kEnd:
        return absl::OkStatus();
      case Terminal::Wake::kKey:
        if (key == 'q') return absl::OkStatus();
        order = OrderOf(key, order);
        break;
      case Terminal::Wake::kResized:
        break;
      case Terminal::Wake::kTime: {
        absl::StatusOr<JobStatus> fresh = FetchJob(options, service, options.interval);
        if (fresh.ok()) {
          job = *std::move(fresh);
          heard = MonotonicNow();
        } else if (!service.MayMove(fresh.status()) ||
                   MonotonicNow() - heard > JobService::kTakeover) {
          return fresh.status();
        }
        break;
      }
    }
  }
}

absl::Status FindAndWatch(TopOptions options) {
  DDPRUN_ASSIGN_OR_RETURN(JobService service, JobService::Find("top", &options));
  DDPRUN_ASSIGN_OR_RETURN(JobStatus job, FetchJob(options, service));
  return Watch(options, service, std::move(job));
}

}  // namespace

int ShowTop(const TopOptions& options) {
  Terminal::HoldSignals();
  const absl::Status status = FindAndWatch(options);
  if (status.ok()) return 0;
  Notify(absl::StrCat("error: ", Printable(status.message())));
  return 1;
}

}  // namespace ddprun::launcher
