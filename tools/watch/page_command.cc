#include "tools/watch/commands.h"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/web/web_server.h"
#include "rendezvous/wire/grpc_settings.h"
#include "tools/watch/job_service.h"

namespace ddprun::launcher {
namespace {

using rendezvous::WebServer;

// The events of a job in etcd say when another service has it: they come from that one.
absl::Status FollowService(const StatusOptions& options, JobService& service, WebServer& page) {
  rendezvous::v1::WatchEventsRequest request;
  request.set_run_id(options.run_id);
  request.set_token(options.token);
  request.set_follow(true);
  std::string target = service.address().target;
  absl::Status status;
  do {  // while etcd is away nobody serves the job; it goes on all the same
    status = service.WatchEvents(
        request, options,
        [&](const std::string& /*run_id*/, const rendezvous::v1::JobEvent& /*event*/) {
          if (target == service.address().target) return true;
          target = service.address().target;
          page.MoveTo(rendezvous::MakeChannel(target, options.tls));
          return true;
        });
  } while (service.MayMove(status));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // the job has ended
}

absl::Status Serve(StatusOptions options) {
  DDPRUN_ASSIGN_OR_RETURN(
      JobService service,
      JobService::Find(absl::StrCat("status --status_page ", options.status_page), &options));
  const WebServer::Options settings = {
      .listen = options.status_page, .token = options.token, .password = options.status_page_token};
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<WebServer> page,
      WebServer::Start(settings, rendezvous::MakeChannel(service.address().target, options.tls)));
  rendezvous::AnnouncePage(settings, page->port());
  if (options.etcd.has_value()) return FollowService(options, service, *page);
  while (true) pause();  // a signal ends the process
}

}  // namespace

int ServePage(StatusOptions options) {
  signal(SIGPIPE, SIG_IGN);
  const absl::Status status = Serve(std::move(options));
  if (status.ok()) return 0;
  Notify(absl::StrCat("error: ", Printable(status.message())));
  return 1;
}

}  // namespace ddprun::launcher
