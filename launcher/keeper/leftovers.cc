#include "launcher/keeper/leftovers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

// Longer than the 2 s for which torch_shm_manager waits for new clients before it removes its
// folder (SHUTDOWN_TIMEOUT in torch/lib/libshm/manager.cpp).
constexpr absl::Duration kCleaningTime = absl::Seconds(3);
// A server (a listening port: a dashboard that a worker has started) doesn't end by itself, so the
// job's end doesn't wait for it for as long as for an upload.
constexpr absl::Duration kServerTime = absl::Seconds(10);

// Processes that do nothing but wait until their clients are gone, and then remove what those have
// left: the resource trackers of Python's multiprocessing and of joblib's loky, and torch's manager
// of shared memory (torch.multiprocessing's strategy file_system).
bool OnlyCleans(absl::string_view command) {
  return absl::StrContains(command, "resource_tracker") ||
         absl::StrContains(command, "torch_shm_manager");
}

}  // namespace

Leftovers::Leftovers() : Leftovers(Probe{.command = CommandText, .holding = HeldResource}) {}

void Leftovers::OnWorkerEnded(const std::string& origin, bool failed) {
  origins_[origin].strict |= failed;
}

void Leftovers::BeginDeadline(Instant now, absl::Duration time, bool strict) {
  newest_ = {.deadline = now + time, .dated = true, .strict = strict};
  for (auto& [name, origin] : origins_) {
    origin.strict |= strict;
    if (origin.dated) continue;
    origin.dated = true;
    origin.deadline = newest_.deadline;
  }
  for (auto& [pid, process] : processes_) process.since = std::max(process.since, now);
}

void Leftovers::Shorten(Instant now, absl::Duration time) {
  for (auto& [name, origin] : origins_) {
    origin.strict = origin.dated = true;
    origin.deadline = std::min(origin.deadline, now + time);
  }
}

std::string Leftovers::WhyKill(pid_t child, const std::string& origin_name, Instant now,
                               bool sweeps) {
  const auto [found, is_new] = processes_.try_emplace(child);
  Process& process = found->second;
  if (is_new) {
    process.pid = child;
    process.origin = origin_name;
    process.since = now;
    process.command = probe_.command(child);
    process.cleans = OnlyCleans(process.command);
  }
  Origin& origin = origins_[process.origin];
  if (sweeps && !origin.dated) origin = newest_;
  if ((origin.strict || origin.dated) && !process.cleans && !std::exchange(process.looked, true)) {
    process.holding = probe_.holding(child);
  }
  if (origin.strict && !process.holding.empty()) return absl::StrCat("held ", process.holding);
  return now >= DeadlineOf(process) ? "was still there" : "";
}

const Leftovers::Process& Leftovers::MarkKilled(pid_t child) {
  Process& process = processes_.at(child);
  process.killed = true;
  return process;
}

bool Leftovers::IsLeft(pid_t child) const {
  const auto found = processes_.find(child);
  return found != processes_.end() && !found->second.killed;
}

std::vector<Leftovers::Process> Leftovers::Left() const {
  std::vector<Process> left;
  for (const auto& [pid, process] : processes_) {
    if (!process.killed && origins_.at(process.origin).dated) left.push_back(process);
  }
  return left;
}

bool Leftovers::AnyDated() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const auto& entry) { return origins_.at(entry.second.origin).dated; });
}

void Leftovers::ForgetEmpty() {
  std::erase_if(origins_, [&](const auto& entry) {
    return entry.second.dated &&
           std::none_of(processes_.begin(), processes_.end(),
                        [&](const auto& process) { return process.second.origin == entry.first; });
  });
}

Instant Leftovers::NextDeadline() const {
  Instant next = Instant::Infinite();
  for (const auto& [pid, process] : processes_) {
    if (!process.killed) next = std::min(next, DeadlineOf(process));
  }
  return next;
}

Instant Leftovers::DeadlineOf(const Process& process) const {
  const Instant deadline = origins_.at(process.origin).deadline;
  if (absl::StartsWith(process.holding, "port ") && !deadline.is_infinite()) {
    return std::min(deadline, process.since + kServerTime);
  }
  return process.cleans ? std::max(deadline, process.since + kCleaningTime) : deadline;
}

}  // namespace ddprun::launcher
