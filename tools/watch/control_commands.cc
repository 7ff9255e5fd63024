#include <poll.h>
#include <unistd.h>
#include "tools/watch/commands.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/web/status_json.h"
#include "tools/watch/event_text.h"
#include "tools/watch/job_finder.h"
#include "tools/watch/job_service.h"
#include "tools/watch/node_state_fields.h"
#include "tools/watch/status_text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::ServiceAddress;

int Fail(const absl::Status& status) {
  Notify(absl::StrCat("error: ", status.message()));
  return 1;
}

// Returns false when the reader of stdout is gone.
bool WaitForNextLook(absl::Duration time) {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  timespec timeout = absl::ToTimespec(time);
  return ppoll(&output, 1, &timeout, nullptr) == 0;
}

// One document, however many services there are: their jobs in one list, each with its service's
// address as "endpoint", and in "cut_off" the nodes that reach no service. "term" and "release" are
// those of the only service. Indented, or with --watch one line for each look.
void PrintJson(const std::vector<FoundService>& services,
               const std::vector<agent::v1::NodeState>& cut_off, bool is_one_of_many) {
  using Json = nlohmann::ordered_json;
  const absl::Time now = absl::Now();
  Json document = Json::object();
  Json jobs = Json::array();
  for (const FoundService& service : services) {
    Json reply = Json::parse(rendezvous::StatusJson(service.reply, now));
    for (Json& job : reply["jobs"]) {
      job["endpoint"] = service.address.name;
      jobs.push_back(std::move(job));
    }
    if (services.size() == 1) document = std::move(reply);
  }
  document["jobs"] = std::move(jobs);
  for (const agent::v1::NodeState& node : cut_off) {
    document["cut_off"].push_back(rendezvous::MessageJson::Of(node, now));
  }
  const int indent = is_one_of_many ? -1 : 2;
  std::puts(document.dump(indent, ' ', false, Json::error_handler_t::replace).c_str());
}

void PrintText(const std::vector<FoundService>& services,
               const std::vector<agent::v1::NodeState>& cut_off, StatusDetail detail) {
  for (const FoundService& service : services) {
    std::fputs(Printable(StatusText(service.reply, service.address.name, detail)).c_str(), stdout);
  }
  for (const agent::v1::NodeState& node : cut_off) {
    std::fputs(Printable(NodeStateText(node)).c_str(), stdout);
  }
}

// Looks once, and prints it; on a terminal that watches, in the place of what was there.
absl::Status Look(const StatusOptions& options) {
  const absl::StatusOr<std::vector<FoundService>> found = FindServices(options);
  // The service answers, so agents without a service belong to another one.
  if (absl::IsUnauthenticated(found.status())) return found.status();
  const std::vector<FoundService> services = found.ok() ? *found : std::vector<FoundService>();
  // If a service doesn't answer, the agents of this machine know the job.
  const std::vector<agent::v1::NodeState> cut_off = FindCutOffNodes(options, services);
  if (!found.ok() && cut_off.empty()) return found.status();
  const bool watches = options.watch > absl::ZeroDuration();
  if (options.form == OutputForm::kJson) {
    PrintJson(services, cut_off, watches);
  } else {
    if (watches && isatty(STDOUT_FILENO) != 0) std::fputs("\x1b[H\x1b[2J", stdout);
    PrintText(services, cut_off,
              options.form == OutputForm::kWide ? StatusDetail::kWide : StatusDetail::kPlain);
  }
  std::fflush(stdout);
  const bool has_job = std::any_of(services.begin(), services.end(), [](const FoundService& each) {
    return each.reply.jobs_size() > 0;
  });
  if (watches || has_job || !cut_off.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no job runs at ", services.front().address.name,
                                          ", where the service answers"));
}

// "job 'job7' (train.py) at host0:29400", as far as the service answers.
std::string WhatIsThere(const ServiceAddress& service, const QueryOptions& options) {
  const auto reply =
      rendezvous::FetchStatus(service, options.run_id, options.timeout, options.token, options.tls);
  std::string name = options.run_id;
  std::string description;
  if (reply.ok() && reply->jobs_size() == 1) {
    name = reply->jobs(0).run_id();
    description = absl::StrCat(" (", reply->jobs(0).description(), ")");
  }
  return absl::StrCat("job ", name.empty() ? "" : Quoted(name), description, " at ", service.name);
}

std::string ShownEvent(OutputForm form, const std::string& run_id,
                       const rendezvous::v1::JobEvent& event) {
  if (form == OutputForm::kJson) return EventJson(run_id, event);
  const EventTime time = form == OutputForm::kWide ? EventTime::kWithDate : EventTime::kOfDay;
  return Printable(EventText(event, absl::LocalTimeZone(), time));
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  if (options.ended) return ShowEnded(options);
  if (!options.status_page.empty()) return ServePage(options);
  while (true) {
    if (const absl::Status status = Look(options); !status.ok()) {
      return Fail(WithEndedHint(status, options.run_id));
    }
    if (options.watch == absl::ZeroDuration()) return 0;
    if (!WaitForNextLook(options.watch)) return 0;
  }
}

int StopJob(StopOptions options) {
  absl::StatusOr<JobService> service = JobService::Find("stop", &options, WhenOne::kAsks);
  if (!service.ok()) return Fail(service.status());
  const std::string what = WhatIsThere(service->address(), options);
  const absl::Status status = service->Ask([&](const ServiceAddress& address) {
    return rendezvous::RequestStop(address, options.run_id, options.token, options.reason,
                                   options.timeout, options.tls);
  });
  if (!status.ok()) return Fail(status);
  Notify(Printable(absl::StrCat("ended ", what)));
  return 0;
}

int DrainNode(DrainOptions options) {
  absl::StatusOr<JobService> service =
      JobService::Find(absl::StrCat("drain ", options.node), &options);
  if (!service.ok()) return Fail(service.status());
  rendezvous::v1::DrainNodeRequest request;
  request.set_run_id(options.run_id);
  request.set_token(options.token);
  request.set_node(options.node);
  request.set_reason(options.reason);
  request.set_undo(options.undo);
  const auto reply = service->Ask([&](const ServiceAddress& address) {
    return rendezvous::RequestDrain(address, request, options.timeout, options.tls);
  });
  if (!reply.ok()) return Fail(reply.status());
  Notify(Printable(reply->text()));
  if (options.undo || !options.wait) return 0;
  rendezvous::v1::WatchEventsRequest watch;
  watch.set_run_id(options.run_id);
  watch.set_token(options.token);
  watch.set_after(reply->after());
  watch.set_follow(true);
  std::string how;
  const absl::Status status = service->WatchEvents(
      watch, options, [&](const std::string& /*run_id*/, const rendezvous::v1::JobEvent& event) {
        how = HowItLeft(event, reply->node_id());
        return how.empty();
      });
  if (how.empty()) {
    return Fail(status.ok() ? absl::UnavailableError("the job is over, without a verdict")
                            : status);
  }
  Notify(Printable(how));
  return 0;
}

int ShowEvents(EventsOptions options) {
  absl::StatusOr<JobService> service = JobService::Find("events", &options);
  if (!service.ok()) return Fail(service.status());
  rendezvous::v1::WatchEventsRequest request;
  request.set_run_id(options.run_id);
  request.set_token(options.token);
  request.set_after(options.after);
  request.set_follow(options.follow);
  const absl::Time first = absl::Now() - options.since;
  uint64_t last = options.after;
  const absl::Status status = service->WatchEvents(
      request, options, [&](const std::string& run_id, const rendezvous::v1::JobEvent& event) {
        if (event.number() > last + 1 && last > 0) Notify(MissedText(last, event.number()));
        last = event.number();
        if (absl::FromUnixMillis(static_cast<int64_t>(event.wall_time_ms())) < first) return true;
        std::fputs(ShownEvent(options.form, run_id, event).c_str(), stdout);
        std::fflush(stdout);
        return true;
      });
  return status.ok() ? 0 : Fail(status);
}

}  // namespace ddprun::launcher
