#include "launcher/side_channels/side_channels.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {

absl::StatusOr<std::unique_ptr<SideChannels>> SideChannels::Create(
    EventLoop* loop, const LaunchPlan* plan, const std::string& hostname, Paths paths,
    const EnvironmentLookup& environment, Hooks hooks) {
  std::unique_ptr<SideChannels> channels(
      new SideChannels(loop, plan, std::move(paths), std::move(hooks)));
  if (environment("TORCHELASTIC_ENABLE_FILE_TIMER") == "1") {
    const std::string given = environment("TORCHELASTIC_TIMER_FILE").value_or("");
    DDPRUN_RETURN_IF_ERROR(
        channels->StartWatchdog(given.empty() ? channels->paths_.timer_file : given));
  }
  if (plan->run_path && plan->worker_count > 1) {
    DDPRUN_ASSIGN_OR_RETURN(
        channels->finish_,
        FinishBarrier::Create(loop, channels->paths_.finish_barrier, channels->hooks_.finished));
  }
  if (const auto port = environment("TORCHELASTIC_HEALTH_CHECK_PORT"); port.has_value()) {
    channels->StartHealth(*port);
  }
  if (plan->events_on_console) {
    channels->events_ = std::make_unique<ElasticEvents>(
        plan, hostname, loop->Now(), [](const std::string& line) { NotifyLines(line); });
  }
  return channels;
}

absl::Status SideChannels::StartWatchdog(std::string path) {
  DDPRUN_ASSIGN_OR_RETURN(
      watchdog_,
      Watchdog::Create(loop_, std::move(path),
                       {.worker_of = [this](pid_t pid) { return WorkerOf(pid); },
                        .on_expired = [this](const auto& expired) { OnExpired(expired); }}));
  return absl::OkStatus();
}

void SideChannels::StartHealth(const std::string& port) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number) || number > UINT16_MAX) {
    return Notify(absl::StrCat("warning: TORCHELASTIC_HEALTH_CHECK_PORT '", port,
                               "' is no port; there are no health checks"));
  }
  auto server =
      HealthServer::Create(loop_, static_cast<uint16_t>(number), [this] { return HealthBody(); });
  if (!server.ok()) {
    return Notify(absl::StrCat("warning: no health checks: ", server.status().message()));
  }
  health_ = *std::move(server);
}

std::optional<uint32_t> SideChannels::WorkerOf(pid_t pid) const {
  const pid_t worker = FindAncestor(pid, [this](pid_t each) { return workers_.contains(each); });
  if (worker == 0) return std::nullopt;
  return workers_.at(worker);
}

void SideChannels::OnExpired(const TimerTable::Expired& expired) {
  for (const auto& [pid, local_rank] : workers_) {
    if (local_rank != expired.local_rank) continue;
    const std::string text = absl::StrCat("its watchdog timer '", expired.scope,
                                          "' expired; the agent sent ", SignalName(expired.signal));
    Notify(absl::StrCat("worker local rank ", local_rank, " (pid ", pid, "): ", text));
    hooks_.record(text);
    expired_[local_rank] = text;
    hooks_.signal_worker(assignment_->generation.value(), pid, expired.signal);
    return;
  }
}

std::string SideChannels::HealthBody() const {
  nlohmann::ordered_json body = {{"status", "ok"},
                                 {"state", hooks_.state()},
                                 {"run_id", plan_->job.run_id},
                                 {"generation", 0},
                                 {"workers_running", workers_.size()},
                                 {"workers", plan_->worker_count}};
  if (assignment_.has_value()) {
    body["generation"] = assignment_->generation.value();
    body["restart_count"] = assignment_->restart_count;
    body["group_rank"] = assignment_->group_rank;
    body["world_size"] = assignment_->world_size;
  }
  return absl::StrCat(body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                      "\n");
}

void SideChannels::OnAssignment(const rendezvous::Assignment& assignment) {
  assignment_ = assignment;
  expired_.clear();
  if (finish_ != nullptr) finish_->Begin(plan_->worker_count);
  if (events_ != nullptr) events_->OnAssignment(loop_->Now(), assignment);
}

void SideChannels::OnStarted(uint32_t local_rank, pid_t pid) {
  workers_[pid] = local_rank;
  if (finish_ != nullptr) finish_->OnStarted(local_rank, pid);
  if (events_ != nullptr) events_->OnStarted(local_rank, static_cast<uint32_t>(pid));
}

void SideChannels::OnEnded(WorkerEnd* end) {
  workers_.erase(static_cast<pid_t>(end->pid));
  if (watchdog_ != nullptr) watchdog_->Forget(end->local_rank);
  if (finish_ != nullptr) finish_->OnEnded(end->local_rank);
  if (const auto expired = expired_.extract(end->local_rank); !expired.empty()) {
    if (end->ok()) end->exit_code = 1;  // a worker that its timer ended hasn't done its work
    if (end->message.empty()) end->message = expired.mapped();
  }
  if (events_ != nullptr) events_->OnEnded(*end);
}

void SideChannels::OnEmpty(const std::set<uint32_t>& kept) {
  std::erase_if(workers_, [&](const auto& entry) { return !kept.contains(entry.second); });
  if (watchdog_ != nullptr) watchdog_->Clear();
  if (events_ != nullptr) events_->OnEmpty(loop_->Now());
}

std::set<pid_t> SideChannels::PidsOf(const std::set<uint32_t>& local_ranks) const {
  std::set<pid_t> pids;
  for (const auto& [pid, local_rank] : workers_) {
    if (local_ranks.contains(local_rank)) pids.insert(pid);
  }
  return pids;
}

void SideChannels::OnExit(bool failed) {
  if (events_ != nullptr) events_->OnExit(loop_->Now(), failed);
}

}  // namespace ddprun::launcher
