#include "launcher/service/service_child.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// The same address, where port 0 has become `port`.
std::string WithPort(const std::string& listen, int port) {
  if (absl::StartsWith(listen, "unix:")) return listen;
  return absl::StrCat(absl::string_view(listen).substr(0, listen.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceChild>> ServiceChild::Fork(
    const std::vector<int>& close_in_child) {
  std::unique_ptr<ServiceChild> child(new ServiceChild());
  DDPRUN_ASSIGN_OR_RETURN(child->process_, ServiceProcess::Fork(close_in_child));
  return child;
}

absl::StatusOr<std::unique_ptr<ServiceChild>> ServiceChild::Spawn() {
  std::unique_ptr<ServiceChild> child(new ServiceChild());
  DDPRUN_ASSIGN_OR_RETURN(child->process_, ServiceProcess::Spawn());
  return child;
}

void ServiceChild::Serve(EventLoop* loop, rendezvous::ServeConfig config, absl::Duration loss,
                         Callbacks callbacks, absl::Duration deaths_window) {
  loop_ = loop;
  config_ = std::move(config);
  callbacks_ = std::move(callbacks);
  restarts_ = std::make_unique<ServiceRestarts>(loss, deaths_window);
  start_timer_ = std::make_unique<Timer>(loop, [this] { StartAgain(); });
  Run();
}

void ServiceChild::Run() {
  pid_ = process_->pid();
  process_->Serve(
      loop_, config_, [this](const absl::StatusOr<ServicePorts>& ports) { OnReady(ports); },
      [this](const ServiceProcess::End& end) { OnEnd(end); });
}

void ServiceChild::StartAgain() {
  absl::StatusOr<std::unique_ptr<ServiceProcess>> process = ServiceProcess::Spawn(config_.store_fd);
  if (!process.ok()) return OnFailedStart(process.status());
  process_ = *std::move(process);
  Run();
}

void ServiceChild::OnReady(const absl::StatusOr<ServicePorts>& ports) {
  if (!served_) {
    served_ = ports.ok();
    if (ports.ok()) KeepPorts(*ports);
    config_.again = true;
    const auto on_ready = callbacks_.on_ready;  // it may destroy us
    if (!ports.ok()) return on_ready(ports.status());
    return on_ready(ports->service);
  }
  if (!ports.ok()) return OnFailedStart(ports.status());
  const ServiceRestarts::Back back = restarts_->OnServing(loop_->Now());
  const auto on_restarted = callbacks_.on_restarted;
  on_restarted(
      {.how = restarts_->how(), .missing = back.missing, .pid = pid_, .times = back.times});
}

// A restarted service listens at the same ports, even if the first one was to use any free port.
void ServiceChild::KeepPorts(const ServicePorts& ports) {
  config_.listen = WithPort(config_.listen, ports.service);
  if (ports.status_page != 0) {
    config_.status_page = WithPort(config_.status_page, ports.status_page);
  }
}

void ServiceChild::OnEnd(const ServiceProcess::End& end) {
  process_.reset();
  if (end.orderly || end.replaced || !wanted_) return GiveUp(end.how);
  if (!end.stale.empty()) {
    return GiveUp(absl::StrCat(end.how, " and is not started again: ", end.stale));
  }
  Decide(restarts_->OnDeath(loop_->Now(), end.how));
}

void ServiceChild::OnFailedStart(const absl::Status& error) {
  process_.reset();
  Decide(restarts_->OnFailedStart(loop_->Now(), std::string(error.message())));
}

void ServiceChild::Decide(const ServiceRestarts::Decision& decision) {
  if (decision.start_at.is_infinite()) return GiveUp(decision.why);
  if (decision.tell.has_value()) callbacks_.on_trouble(*decision.tell);
  if (decision.start_at <= loop_->Now()) return StartAgain();
  start_timer_->Arm(decision.start_at);
}

void ServiceChild::StartNoMore() {
  if (!std::exchange(wanted_, false) || restarts_ == nullptr || !restarts_->is_missing()) return;
  start_timer_->Disarm();
  process_.reset();
  GiveUp(restarts_->how());
}

void ServiceChild::GiveUp(const std::string& how) {
  wanted_ = false;
  const auto on_exit = callbacks_.on_exit;  // it may destroy us
  on_exit(how);
}

}  // namespace ddprun::launcher
