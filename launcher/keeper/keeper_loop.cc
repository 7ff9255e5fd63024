#include "launcher/keeper/keeper_loop.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "launcher/keeper/exec_child.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

namespace v1 = keeper::v1;

// How the loop works.
//
// Goal: when a worker, a generation or the agent ends, every process that descends from it ends,
// however it was forked; no other process is ever signalled; and the agent hears of each start and
// each end exactly once.
//
// Killing by lists of pids fails: between reading a list and kill(2) a process may end and its pid
// go to a stranger, or fork a child that the list doesn't have. Killing process groups misses all
// that called setsid(2). Reaping first (waitpid(-1)) frees the pid, the session and
// /proc/PID/environ, by which leftovers are recognized.
//
// So the keeper is a subreaper: an orphan below it becomes its direct child. The loop signals only
// direct children that it has not reaped, because the kernel can't reuse their pids. It looks at a
// dead child (WNOWAIT), does what needs the pid, and reaps it last. A tree dies from the top, one
// level a round. Example with kills_leftovers: worker 100 forked 101 and 101 forked 102, each in a
// session of its own:
//
//   round  wakes up for    direct children   what happens
//   1      Sweep           100               kill 100
//   2      SIGCHLD of 100  100 dead, 101     kill 101 (its tag is that of 100); reap 100: Exited
//   3      SIGCHLD of 101  101 dead, 102     reap 101, kill 102
//   4      SIGCHLD of 102  102 dead          reap 102; waitid(2) says ECHILD: Empty
//
// If 100 ends by itself, rounds 2 to 4 are the same without the Empty. Without kills_leftovers, 101
// and 102 have time to end by themselves (Leftovers). A tree that forks faster than rounds kill it
// is killed by its cgroup after 64 rounds (keeper_sweep.cc).
//
// Order of a round, and what it prevents:
//   Wait          settles starts, then reads commands, then looks at the agent's pidfd: the last
//                 commands of a living agent are signs of life
//   CheckSilence  after the commands, which put the deadline off
//   LookAtParked  before the reaping: a forked worker must be in workers_ before its death is seen,
//                 or it would be reaped as an orphan, without an Exited
//   ReapChildren  before the kills: it decides whether anything is left (children_left_)
//   KillAll, FinishSweep
//
// Invariant: until the agent is lost, each Spawn is answered by one Started or one StartFailed, and
// each worker that was Started is the subject of one Exited. A start that the fork server refuses,
// fails or delays is made by exec(2) instead, unless a sweep or a stop has cancelled it.

// Chosen: the most children that one round reaps, so that a worker that forks without end can't
// keep the loop from its commands.
constexpr int kReapsPerRound = 256;
// Chosen: far above any kernel's NR_CPUS. Bounds the mask for sched_setaffinity(2) at 128 KiB.
constexpr uint32_t kCpusMax = 1 << 20;

void Reap(const siginfo_t& child, int what) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.si_pid), &info, what | WNOHANG | __WALL);
}

bool AsksForTheEnd(int signal_number) {
  return signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP ||
         signal_number == SIGQUIT;
}

}  // namespace

KeeperLoop::KeeperLoop(Fd channel, AgentSeat seat, Fd child_signals)
    : channel_(std::move(channel)),
      seat_(std::move(seat)),
      child_signals_(std::move(child_signals)),
      tag_prefix_(absl::StrCat(getpid(), ".")),
      sends_(channel_.get()),
      clock_(MonotonicNow()),
      silence_deadline_(clock_.At(MonotonicNow()) + seat_.options.isolation_timeout) {}

void KeeperLoop::Run() {
  while (!agent_lost_ || children_left_) {
    Wait();
    CheckSilence();
    LookAtParked();
    ReapChildren();
    if (sweeping()) {
      CancelParked(std::nullopt, "sweep", EBUSY);
      KillAll();
      FinishSweep();
    } else if (!ended_sessions_.empty() || !leftovers_.empty() || leftovers_told_) {
      KillLeftovers();
    }
    ReportLeftoversGone();
  }
  output_rest_.Pour();
}

void KeeperLoop::Wait() {
  std::vector<pollfd> fds;
  // A negative descriptor is skipped by ppoll(2).
  const int channel = agent_lost_ ? -1 : channel_.get();
  const auto channel_events = static_cast<short>(sends_.empty() ? POLLIN : POLLIN | POLLOUT);
  fds.push_back({.fd = channel, .events = channel_events, .revents = 0});
  fds.push_back({.fd = agent_lost_ ? -1 : seat_.pidfd.get(), .events = POLLIN, .revents = 0});
  fds.push_back({.fd = child_signals_.get(), .events = POLLIN, .revents = 0});
  std::vector<pid_t> starting;
  for (const auto& [pid, worker] : workers_) {
    if (!worker.start_report.valid()) continue;
    fds.push_back({.fd = worker.start_report.get(), .events = POLLIN, .revents = 0});
    starting.push_back(pid);
  }

  parked_.AddTo(&fds);

  asked_ = NextDeadline();
  const absl::Duration timeout =
      reap_again_ ? absl::ZeroDuration() : std::max(absl::ZeroDuration(), asked_ - MonotonicNow());
  const timespec limit = absl::ToTimespec(timeout);
  const bool forever = timeout == absl::InfiniteDuration();
  if (ppoll(fds.data(), fds.size(), forever ? nullptr : &limit, nullptr) <= 0) return;

  signalfd_siginfo ignored{};
  while (read(child_signals_.get(), &ignored, sizeof(ignored)) > 0) {
  }
  for (size_t i = 0; i < starting.size(); ++i) {
    if (fds[3 + i].revents != 0) SettleStart(starting[i], &workers_.at(starting[i]));
  }
  // Commands before the pidfd: those of a living agent count as a sign of life. LoseAgent() makes
  // what a dead agent asked for last pointless, but harmless.
  if ((fds[0].revents & POLLOUT) != 0 && !sends_.Flush().ok()) LoseAgent();
  if (fds[0].revents != 0) ReadCommands();
  if (fds[1].revents != 0) LoseAgent();
}

Instant KeeperLoop::NextDeadline() const {
  const Instant next = std::min(clock_.Wake(leftovers_.NextDeadline()), parked_.NextDeadline());
  return agent_lost_ ? next : std::min(clock_.Wake(silence_deadline_), next);
}

// The clock stands still while the keeper itself is frozen (a paused container), so that an agent
// that was frozen with it has time to report.
void KeeperLoop::CheckSilence() {
  if (clock_.Read(MonotonicNow(), asked_) >= silence_deadline_) LoseAgent();
}

void KeeperLoop::ReadCommands() {
  for (;;) {
    absl::StatusOr<std::optional<Message>> message = ReceiveMessage(channel_.get());
    if (absl::IsOutOfRange(message.status())) return LoseAgent();
    if (message.ok() && !message->has_value()) return;
    v1::Command command;
    if (!message.ok() || !command.ParseFromString((*message)->bytes)) {
      Log(LogLevel::kError, "the keeper got a command that it can't read, and dropped it");
      continue;
    }
    silence_deadline_ = clock_.At(MonotonicNow()) + seat_.options.isolation_timeout;
    OnCommand(command, std::move((*message)->fds));
  }
}

void KeeperLoop::OnCommand(const v1::Command& command, std::vector<Fd> fds) {
  switch (command.body_case()) {
    case v1::Command::kSpawn:
      return OnSpawn(command.spawn(), std::move(fds));
    case v1::Command::kSignal:
      return OnSignal(command.signal());
    case v1::Command::kSweep:
      return OnSweep(command.sweep());
    case v1::Command::kKeep:
      return OnKeep(command.keep());
    case v1::Command::kPark:
      return OnPark(command.park());
    case v1::Command::kUnpark:
      return parked_.Kill();
    case v1::Command::kLimitLeftovers:
      return LimitLeftovers(
          absl::Milliseconds(static_cast<int64_t>(command.limit_leftovers().time_ms())));
    case v1::Command::kAdopt:
      return OnAdopt(command.adopt(), std::move(fds));
    case v1::Command::kBeat:
    case v1::Command::BODY_NOT_SET:
      return;
  }
}

void KeeperLoop::OnSpawn(const v1::Spawn& spawn, std::vector<Fd> fds) {
  const uint64_t generation = spawn.generation();
  const uint32_t local_rank = spawn.local_rank();
  const size_t streams = (spawn.has_stdout() ? 1U : 0U) + (spawn.has_stderr() ? 1U : 0U);
  const auto first_rest = fds.begin() + static_cast<std::ptrdiff_t>(std::min(streams, fds.size()));
  std::vector<Fd> rests(std::make_move_iterator(first_rest), std::make_move_iterator(fds.end()));
  fds.resize(std::min(streams, fds.size()));
  const bool cpus_are_numbers = std::all_of(spawn.cpus().begin(), spawn.cpus().end(),
                                            [](uint32_t n) { return n < kCpusMax; });
  if (fds.size() != streams || rests.size() != spawn.rests()) {
    return SendStartFailed(generation, local_rank, "take the streams of", EMFILE);
  }
  if (spawn.argv().empty() || !cpus_are_numbers) {
    return SendStartFailed(generation, local_rank, "read the command", EINVAL);
  }
  if (sweeping()) return SendStartFailed(generation, local_rank, "sweep", EBUSY);
  output_rest_.Add(local_rank, std::move(rests));
  leftovers_stay_ = false;

  const std::vector<std::string> unset(spawn.unset().begin(), spawn.unset().end());
  std::vector<std::string> overrides(spawn.environment().begin(), spawn.environment().end());
  overrides.push_back(absl::StrCat(kTagVariable, "=", TagOf(generation, local_rank)));
  ParkedStart start{.generation = generation,
                    .local_rank = local_rank,
                    .argv = {spawn.argv().begin(), spawn.argv().end()},
                    .environment = ComposeEnvironment(seat_.environment, overrides, unset),
                    .cpus = {spawn.cpus().begin(), spawn.cpus().end()}};
  if (spawn.has_stdout()) start.stdout_fd = std::move(fds.front());
  if (spawn.has_stderr()) start.stderr_fd = std::move(fds.back());
  if (spawn.parked_patience_ms() == 0) return Exec(std::move(start));
  if (seat_.adopted) start.OutlivesAgents();
  const absl::Duration patience = absl::Milliseconds(spawn.parked_patience_ms());
  auto refused = parked_.Ask(std::move(start), patience, MonotonicNow());
  if (refused.has_value()) Exec(*std::move(refused));
}

// Starts a worker by exec(2).
void KeeperLoop::Exec(ParkedStart start) {
  ExecChildResult result = StartExecChild({
      .argv = std::move(start.argv),
      .environment = std::move(start.environment),
      .stdout_fd = start.stdout_fd.get(),
      .stderr_fd = start.stderr_fd.get(),
      .cpus = std::move(start.cpus),
      .cgroup_fd = seat_.cgroup.folder(),
  });
  if (result.error.has_value()) {
    return SendStartFailed(start.generation, start.local_rank, StageName(result.error->stage),
                           result.error->error_number);
  }
  children_left_ = true;
  ended_sessions_.erase(result.child.pid);
  workers_[result.child.pid] = {.generation = start.generation,
                                .local_rank = start.local_rank,
                                .start_report = std::move(result.child.report),
                                .tag_generation = start.generation};
}

void KeeperLoop::OnPark(const v1::Park& park) {
  if (park.argv().empty() || parked_.pid() != 0) {
    return SendParkedEnd({.start_error = StartError{.error_number = EBUSY}});
  }
  const std::vector<std::string> unset(park.unset().begin(), park.unset().end());
  const std::vector<std::string> overrides(park.environment().begin(), park.environment().end());
  const auto error = parked_.Start({park.argv().begin(), park.argv().end()},
                                   ComposeEnvironment(seat_.environment, overrides, unset),
                                   {park.tail().begin(), park.tail().end()}, seat_.cgroup.folder());
  if (error.has_value()) return SendParkedEnd({.start_error = error});
  children_left_ = true;
}

void KeeperLoop::OnAdopt(const v1::Adopt& adopt, std::vector<Fd> fds) {
  const absl::Status status = Adopt(adopt, std::move(fds), parked_.pid(), &seat_);
  silence_deadline_ = clock_.At(MonotonicNow()) + seat_.options.isolation_timeout;
  v1::Event event;
  event.mutable_adopted()->set_why_not(std::string(status.message()));
  Send(event);
}

// Takes over the workers that the fork server has forked, and starts by exec(2) those that it
// failed to.
void KeeperLoop::LookAtParked() {
  ParkedProcess::Outcome outcome = parked_.Look(MonotonicNow());
  for (ParkedProcess::Outcome::Set& set : outcome.set) {
    Worker& worker = workers_[set.pid];
    worker = {.generation = set.start.generation,
              .local_rank = set.start.local_rank,
              .tag_generation = set.start.generation};
    children_left_ = true;
    ended_sessions_.erase(set.pid);
    SendStarted(set.pid, worker, /*parked=*/true);
    ParkedProcess::Go(set.answers);
  }
  for (ParkedStart& start : outcome.failed) {
    if (sweeping()) {
      SendStartFailed(start.generation, start.local_rank, "sweep", EBUSY);
    } else {
      Exec(std::move(start));
    }
  }
  for (std::string& text : parked_.TakeTexts()) {
    v1::Event event;
    event.mutable_parked_said()->set_text(std::move(text));
    Send(event);
  }
}

void KeeperLoop::CancelParked(std::optional<uint64_t> generation, const char* stage, int error) {
  for (const ParkedStart& start : parked_.Cancel(generation)) {
    SendStartFailed(start.generation, start.local_rank, stage, error);
  }
}

void KeeperLoop::OnParkedDead(const siginfo_t& child) {
  LookAtParked();
  const ParkedProcess::End end = parked_.OnDead(child);
  LookAtParked();
  kill(-child.si_pid, SIGKILL);
  Reap(child, WEXITED);
  SendParkedEnd(end);
}

void KeeperLoop::SendParkedEnd(const ParkedProcess::End& end) {
  v1::Event event;
  v1::ParkedEnded* ended = event.mutable_parked_ended();
  ended->set_exit_code(end.exit_code);
  ended->set_signal(end.signal);
  if (end.start_error.has_value()) {
    ended->set_stage(StageName(end.start_error->stage));
    ended->set_error_number(end.start_error->error_number);
  }
  Send(event);
}

void KeeperLoop::OnSignal(const v1::Signal& command) {
  const int signal_number = command.signal();
  const bool ends = AsksForTheEnd(signal_number) || signal_number == SIGKILL;
  if (ends && command.pid() == 0) {
    CancelParked(command.generation(), "stop", ECANCELED);
  }
  const std::set<uint32_t> spared(command.spared().begin(), command.spared().end());
  for (const auto& [pid, worker] : workers_) {
    if (worker.generation != command.generation()) continue;
    if (command.pid() != 0 && static_cast<pid_t>(command.pid()) != pid) continue;
    if (spared.contains(worker.local_rank)) continue;
    // Helpers in the worker's group clean up after it, so they aren't killed with it.
    if (signal_number == SIGKILL && !seat_.options.kills_leftovers) {
      kill(pid, SIGKILL);
      continue;
    }
    // A child that hasn't called setsid(2) so far has no group of its own.
    if (kill(-pid, signal_number) != 0) kill(pid, signal_number);
    if (AsksForTheEnd(signal_number)) kill(-pid, SIGCONT);
  }
}

// Reports to the agent how a start ended. Doesn't block: called when the report is readable, or
// when its only writer is dead.
void KeeperLoop::SettleStart(pid_t pid, Worker* worker) {
  if (!worker->start_report.valid()) return;
  const StartReport report = ReadStartReport(worker->start_report.get());
  if (!report.over) return;
  worker->start_report.Reset();
  if (report.error.has_value()) {
    worker->start_failed = true;
    return SendStartFailed(worker->generation, worker->local_rank, StageName(report.error->stage),
                           report.error->error_number);
  }
  SendStarted(pid, *worker, /*parked=*/false);
}

void KeeperLoop::SendStarted(pid_t pid, const Worker& worker, bool parked) {
  v1::Event event;
  v1::Started* started = event.mutable_started();
  started->set_generation(worker.generation);
  started->set_local_rank(worker.local_rank);
  started->set_pid(static_cast<uint32_t>(pid));
  started->set_parked(parked);
  Send(event);
}

void KeeperLoop::ReapChildren() {
  reap_again_ = false;
  for (int round = 0; round < kReapsPerRound; ++round) {
    siginfo_t child{};
    // WNOWAIT: a child that isn't reaped keeps its pid and its group.
    const int what = WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL;
    if (waitid(P_ALL, 0, &child, what) != 0) {
      children_left_ = errno != ECHILD;
      return;
    }
    children_left_ = true;
    if (child.si_pid == 0) {
      children_left_ = OthersThanSparedLeft();
      return;
    }
    if (child.si_code == CLD_STOPPED || child.si_code == CLD_TRAPPED) {
      OnStopped(child);
    } else {
      OnDead(child);
    }
  }
  reap_again_ = true;
}

void KeeperLoop::OnStopped(const siginfo_t& child) {
  Reap(child, WSTOPPED);
  const auto found = workers_.find(child.si_pid);
  // A worker can stop and continue without end, so an agent that doesn't read isn't sent more.
  if (found == workers_.end() || !sends_.empty()) return;
  v1::Event event;
  v1::Stopped* stopped = event.mutable_stopped();
  stopped->set_generation(found->second.generation);
  stopped->set_local_rank(found->second.local_rank);
  stopped->set_pid(static_cast<uint32_t>(child.si_pid));
  stopped->set_signal(child.si_status);
  Send(event);
}

void KeeperLoop::OnDead(const siginfo_t& child) {
  if (child.si_pid == parked_.pid()) return OnParkedDead(child);
  // A forked worker that said that it is set, and died, after the last LookAtParked().
  if (parked_.IsOnItsWay(child.si_pid)) LookAtParked();
  const auto found = workers_.find(child.si_pid);
  if (found != workers_.end()) return OnWorkerDead(child, found);
  // The group may have members that were forked since the last DirectChildren().
  if (sweeping() && seat_.options.kills_leftovers) KillChildAndGroup(child.si_pid);
  if (child.si_code == CLD_KILLED && child.si_status == SIGKILL) ++killed_;
  Reap(child, WEXITED);
  leftovers_.OnReaped(child.si_pid);
}

void KeeperLoop::OnWorkerDead(const siginfo_t& child, Workers::iterator found) {
  const pid_t pid = child.si_pid;
  const Instant seen = MonotonicNow();
  SettleStart(pid, &found->second);
  const Worker worker = std::move(found->second);
  // Without the entry, the worker's tag and session mark leftovers.
  workers_.erase(found);
  spared_.erase(pid);
  ended_sessions_.insert(pid);
  const bool failed = child.si_code != CLD_EXITED || child.si_status != 0;
  for (const std::string& origin : {TagOf(worker), absl::StrCat("session ", pid)}) {
    leftovers_.OnWorkerEnded(origin, failed);
  }
  const uint32_t swept = KillLeftovers();
  if (seat_.options.kills_leftovers) kill(-pid, SIGKILL);
  Reap(child, WEXITED);
  if (worker.start_failed) return;

  v1::Event event;
  v1::Exited* exited = event.mutable_exited();
  exited->set_generation(worker.generation);
  exited->set_local_rank(worker.local_rank);
  exited->set_pid(static_cast<uint32_t>(pid));
  if (child.si_code == CLD_EXITED) {
    exited->set_exit_code(child.si_status);
  } else {
    exited->set_signal(child.si_status);
    exited->set_core_dumped(child.si_code == CLD_DUMPED);
  }
  exited->set_swept(swept);
  exited->set_seen_ns(seen.nanoseconds());
  Send(event);
}

// Ends everything below the keeper: spared workers as well, and leftovers now instead of at their
// deadline, unless the agent ended well and asked for them to stay. The next round reaps and kills
// even if the last one found nothing left.
void KeeperLoop::LoseAgent() {
  if (std::exchange(agent_lost_, true)) return;
  spared_.clear();
  if (leftovers_stay_) return Outlast();
  const Instant now = clock_.At(MonotonicNow());
  leftovers_.BeginDeadline(now, absl::ZeroDuration(), /*strict=*/false);
  leftovers_.Shorten(now, absl::ZeroDuration());
  children_left_ = true;
  reap_again_ = true;
}

void KeeperLoop::Send(const v1::Event& event) {
  if (agent_lost_) return;
  if (!sends_.Send(event.SerializeAsString()).ok()) LoseAgent();
}

void KeeperLoop::SendStartFailed(uint64_t generation, uint32_t local_rank, const char* stage,
                                 int error) {
  v1::Event event;
  v1::StartFailed* failed = event.mutable_start_failed();
  failed->set_generation(generation);
  failed->set_local_rank(local_rank);
  failed->set_stage(stage);
  failed->set_error_number(error);
  Send(event);
}

}  // namespace ddprun::launcher
