#include "launcher/keeper/parked_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

constexpr char kChannelVariable[] = "DDPRUN_WARM";
// An agent that doesn't take them gets no more texts than these.
constexpr size_t kTextsMax = 4096;

// Whether the process is an unreaped child of ours, so that the pid can't be another process's.
bool IsOurChild(pid_t pid) {
  siginfo_t info{};
  return pid > 0 &&
         waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

std::string RequestText(const ParkedStart& start) {
  const std::string nul(1, '\0');
  std::string text =
      absl::StrCat(getpid(), nul, absl::StrJoin(start.cpus, ","), nul,
                   start.stdin_fd.valid() ? "i" : "", start.stdout_fd.valid() ? "o" : "",
                   start.stderr_fd.valid() ? "e" : "", start.checks ? "c" : "", nul);
  for (const std::string& variable : start.environment) absl::StrAppend(&text, variable, nul);
  return text;
}

// The fork server may import at the lowest priority (docs/WARM.md); now a worker waits for it.
void GiveOurPriority(pid_t pid) {
  sched_param parameters{};
  const int policy = sched_getscheduler(0);
  if (policy < 0 || sched_getparam(0, &parameters) != 0) return;
  sched_setscheduler(pid, policy, &parameters);  // or not: then it imports slowly
}

Fd Duplicate(int fd) { return fd >= 0 ? Fd(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) : Fd(); }

}  // namespace

void ParkedStart::OutlivesAgents() {
  checks = true;
  stdin_fd = Duplicate(STDIN_FILENO);
  if (!stdout_fd.valid()) stdout_fd = Duplicate(STDOUT_FILENO);
  if (!stderr_fd.valid()) stderr_fd = Duplicate(STDERR_FILENO);
}

std::optional<StartError> ParkedProcess::Start(std::vector<std::string> argv,
                                               std::vector<std::string> environment,
                                               const std::vector<std::string>& tail,
                                               int cgroup_fd) {
  absl::StatusOr<FdPair> pair = MakeMessagePair();
  if (!pair.ok()) return StartError{.stage = StartError::Stage::kFork, .error_number = EMFILE};
  environment.push_back(absl::StrCat(kChannelVariable, "=", pair->second.get()));
  environment.insert(environment.end(), tail.begin(), tail.end());
  ExecChildResult result = StartExecChild({.argv = std::move(argv),
                                           .environment = std::move(environment),
                                           .cgroup_fd = cgroup_fd,
                                           .inherited_fd = pair->second.get()});
  if (result.error.has_value()) return result.error;
  pid_ = result.child.pid;
  killed_ = false;
  start_report_ = std::move(result.child.report);
  channel_ = std::move(pair->first);
  return std::nullopt;
}

void ParkedProcess::Kill() {
  if (pid_ == 0 || killed_) return;
  killed_ = true;
  KillChildAndGroup(pid_);
}

void ParkedProcess::ReadStartReport() {
  if (!start_report_.valid()) return;
  const StartReport report = launcher::ReadStartReport(start_report_.get());
  if (!report.over) return;
  start_report_.Reset();
  start_error_ = report.error;
}

ParkedProcess::End ParkedProcess::OnDead(const siginfo_t& child) {
  ReadTexts();
  ReadStartReport();
  End end{.start_error = std::exchange(start_error_, std::nullopt)};
  if (child.si_code == CLD_EXITED) {
    end.exit_code = child.si_status;
  } else {
    end.signal = child.si_status;
  }
  pid_ = 0;
  killed_ = false;
  channel_.Reset();
  start_report_.Reset();
  return end;
}

std::optional<ParkedStart> ParkedProcess::Ask(ParkedStart start, absl::Duration patience,
                                              Instant now) {
  absl::StatusOr<FdPair> pair = MakeMessagePair();
  if (!Answers() || !pair.ok()) return start;
  std::vector<Fd> fds;
  fds.push_back(std::move(pair->second));
  for (const Fd* stream : {&start.stdin_fd, &start.stdout_fd, &start.stderr_fd}) {
    if (!stream->valid()) continue;
    fds.push_back(Duplicate(stream->get()));
    if (!fds.back().valid()) return start;
  }
  // If the socket doesn't take the request at once, exec(2) is quicker than waiting.
  SendQueue sends(channel_.get());
  if (!sends.Send(RequestText(start), std::move(fds)).ok() || !sends.empty()) return start;
  GiveOurPriority(pid_);
  starts_.push_back(
      {.start = std::move(start), .answers = std::move(pair->first), .deadline = now + patience});
  return std::nullopt;
}

std::vector<ParkedStart> ParkedProcess::Cancel(std::optional<uint64_t> generation) {
  std::vector<ParkedStart> given_up;
  for (auto pending = starts_.begin(); pending != starts_.end();) {
    const auto next = std::next(pending);
    if (!generation.has_value() || pending->start.generation == *generation) {
      Read(&*pending);
      GiveUp(*pending);
      given_up.push_back(std::move(pending->start));
      // If the request isn't taken, the closed socket cancels it.
      if (pending->taken) {
        cancelled_.splice(cancelled_.end(), starts_, pending);
      } else {
        starts_.erase(pending);
      }
    }
    pending = next;
  }
  return given_up;
}

bool ParkedProcess::IsOnItsWay(pid_t child) const {
  const auto is_it = [child](const Pending& pending) { return pending.pid == child; };
  return std::any_of(starts_.begin(), starts_.end(), is_it);
}

void ParkedProcess::AddTo(std::vector<pollfd>* fds) const {
  if (channel_.valid()) fds->push_back({.fd = channel_.get(), .events = POLLIN, .revents = 0});
  if (start_report_.valid()) {
    fds->push_back({.fd = start_report_.get(), .events = POLLIN, .revents = 0});
  }
  for (const std::list<Pending>* list : {&starts_, &cancelled_}) {
    for (const Pending& pending : *list) {
      fds->push_back({.fd = pending.answers.get(), .events = POLLIN, .revents = 0});
    }
  }
}

Instant ParkedProcess::NextDeadline() const {
  Instant next = Instant::Infinite();
  for (const std::list<Pending>* list : {&starts_, &cancelled_}) {
    for (const Pending& pending : *list) next = std::min(next, pending.deadline);
  }
  return next;
}

// Reads the answers that have come.
ParkedProcess::Step ParkedProcess::Read(Pending* pending) {
  for (;;) {
    const absl::StatusOr<std::optional<Message>> message = ReceiveMessage(pending->answers.get());
    if (!message.ok()) return Step::kFailed;
    if (!message->has_value()) return Step::kWaits;
    absl::string_view text = (*message)->bytes;
    if (text == "taken") {
      pending->taken = true;
    } else if (absl::ConsumePrefix(&text, "pid ")) {
      if (!absl::SimpleAtoi(text, &pending->pid) || !IsOurChild(pending->pid)) {
        pending->pid = 0;
        return Step::kFailed;
      }
    } else if (text == "set" && pending->pid != 0) {
      return Step::kSet;
    } else {
      return Step::kFailed;
    }
  }
}

ParkedProcess::Step ParkedProcess::ReadBefore(Instant now, Pending* pending) {
  const Step step = Read(pending);
  if (step != Step::kWaits || now < pending->deadline) return step;
  // The fork has taken too long. Kill the server, because later requests would wait for the same.
  if (pending->taken) Kill();
  return Step::kFailed;
}

// Ends what may come of a start that failed or takes too long.
void ParkedProcess::GiveUp(const Pending& pending) {
  if (IsOurChild(pending.pid)) KillChildAndGroup(pending.pid);
}

ParkedProcess::Outcome ParkedProcess::Look(Instant now) {
  ReadTexts();
  ReadStartReport();
  Outcome outcome;
  for (auto pending = starts_.begin(); pending != starts_.end();) {
    const auto next = std::next(pending);
    const Step step = ReadBefore(now, &*pending);
    if (step == Step::kSet) {
      outcome.set.push_back({.start = std::move(pending->start),
                             .pid = pending->pid,
                             .answers = std::move(pending->answers)});
    } else if (step == Step::kFailed) {
      GiveUp(*pending);
      outcome.failed.push_back(std::move(pending->start));
    }
    if (step != Step::kWaits) starts_.erase(pending);
    pending = next;
  }
  cancelled_.remove_if([this, now](Pending& pending) {
    if (ReadBefore(now, &pending) == Step::kWaits) return false;
    GiveUp(pending);
    return true;
  });
  return outcome;
}

void ParkedProcess::ReadTexts() {
  while (channel_.valid()) {
    absl::StatusOr<std::optional<Message>> message = ReceiveMessage(channel_.get());
    if (absl::IsOutOfRange(message.status())) return channel_.Reset();
    if (message.ok() && !message->has_value()) return;
    if (message.ok() && texts_.size() < kTextsMax) texts_.push_back(std::move((*message)->bytes));
  }
}

std::vector<std::string> ParkedProcess::TakeTexts() { return std::exchange(texts_, {}); }

void ParkedProcess::Go(const Fd& answers) { SendQueue(answers.get()).Send("go").IgnoreError(); }

}  // namespace ddprun::launcher
