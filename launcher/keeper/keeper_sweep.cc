#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "launcher/keeper/keeper_loop.h"
#include "launcher/os/cgroup.h"
#include "launcher/os/processes.h"

// How the keeper empties its tree, and which processes it leaves alone meanwhile.
namespace ddprun::launcher {
namespace {

namespace v1 = keeper::v1;

// A tree that isn't gone after so many rounds of kills forks faster than it dies.
constexpr int kRoundsBeforeCgroup = 64;
// How many processes an Empty names, and how many kills are reported until the next Empty.
constexpr size_t kLeftoversNamed = 8;
constexpr uint32_t kKillsTold = 32;

// The local rank in a tag, "<keeper>.<generation>.<local rank>"; -1 = not a tag.
int32_t LocalRankOf(absl::string_view origin) {
  int32_t local_rank = -1;
  const size_t dot = origin.rfind('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(origin.substr(dot + 1), &local_rank)) {
    return -1;
  }
  return local_rank;
}

void Fill(const Leftovers::Process& process, v1::Leftover* message) {
  message->set_pid(static_cast<uint32_t>(process.pid));
  message->set_command(process.command);
  message->set_local_rank(LocalRankOf(process.origin));
}

}  // namespace

void KeeperLoop::OnSweep(const v1::Sweep& sweep) {
  sweeps_.insert(sweep.generation());
  spared_.clear();
  const std::set<uint32_t> spared(sweep.spared().begin(), sweep.spared().end());
  for (const auto& [pid, worker] : workers_) {
    if (worker.generation != sweep.generation()) continue;
    if (spared.contains(worker.local_rank)) spared_.insert(pid);
  }
  leftovers_stay_ = sweep.leftovers_stay();
  const absl::Duration time = leftovers_stay_
                                  ? absl::InfiniteDuration()
                                  : absl::Milliseconds(static_cast<int64_t>(sweep.leftovers_ms()));
  leftovers_.BeginDeadline(clock_.At(MonotonicNow()), time, sweep.strict());
}

void KeeperLoop::OnKeep(const v1::Keep& keep) {
  const auto found = std::find_if(spared_.begin(), spared_.end(), [&](pid_t pid) {
    return workers_.at(pid).local_rank == keep.local_rank();
  });
  if (found == spared_.end() || sweeping()) {
    return SendStartFailed(keep.generation(), keep.local_rank(), "keep", ESRCH);
  }
  Worker& worker = workers_.at(*found);
  worker.generation = keep.generation();
  SendStarted(*found, worker, /*parked=*/false);
  spared_.erase(found);
}

// Whether a child is left that the sweep must wait for. Requires: no child waits to be reaped. A
// process joins the list of our children before its parent can be reaped, and leaves it only when
// we reap it, so the list is complete.
bool KeeperLoop::OthersThanSparedLeft() const {
  // Without an agent nothing is spared.
  const bool all_must_go = parked_.pid() == 0 && spared_.empty() && leftovers_.empty();
  if (!sweeping() || agent_lost_ || all_must_go) return true;
  const std::vector<pid_t> children = DirectChildren();
  return std::any_of(children.begin(), children.end(), [&](pid_t child) {
    return child != parked_.pid() && !IsSpared(child) && !leftovers_.IsLeft(child);
  });
}

// SIGKILLs every child that has no time left. Children that lose their parent by that are ours in
// the next round.
void KeeperLoop::KillAll() {
  if (++kill_rounds_ == kRoundsBeforeCgroup) seat_.cgroup.Kill();
  if (agent_lost_) parked_.Kill();
  for (const pid_t child : DirectChildren()) {
    if (child != parked_.pid() && !IsSpared(child)) KillInSweep(child);
  }
}

void KeeperLoop::KillInSweep(pid_t child) {
  if (seat_.options.kills_leftovers) return KillChildAndGroup(child);
  // Not its process group, in which its helpers clean up.
  if (workers_.contains(child) || parked_.IsOnItsWay(child)) {
    kill(child, SIGKILL);
  } else if (!IsZombie(child)) {
    // A leftover that turns out to have time doesn't hold up the sweep, but no event may come that
    // ends the wait: another round finds children_left_ false.
    reap_again_ |= !leftovers_.Contains(child);
    KillLeftover(child);
  }
}

// SIGKILLs the direct children that ended workers have left and that have no time left. Returns how
// many there were.
uint32_t KeeperLoop::KillLeftovers() {
  uint32_t count = 0;
  for (const pid_t child : DirectChildren()) {
    if (workers_.contains(child) || child == parked_.pid() || parked_.IsOnItsWay(child)) continue;
    if (IsZombie(child) || !IsLeftover(child)) continue;
    if (seat_.options.kills_leftovers) {
      KillChildAndGroup(child);
    } else if (!KillLeftover(child)) {
      continue;
    }
    ++count;
  }
  return count;
}

// Returns false if the child has time left. Kills no group: another helper of the same worker in it
// may have time left.
bool KeeperLoop::KillLeftover(pid_t child) {
  const Instant now = clock_.At(MonotonicNow());
  const std::string why = leftovers_.WhyKill(child, OriginOf(child), now, sweeping());
  if (why.empty()) return false;
  const bool is_first = leftovers_.IsLeft(child);
  const Leftovers::Process& process = leftovers_.MarkKilled(child);
  kill(child, SIGKILL);
  if (!is_first || ++leftovers_killed_ > kKillsTold) return true;
  v1::Event event;
  v1::LeftoverKilled* killed = event.mutable_leftover_killed();
  Fill(process, killed->mutable_process());
  killed->set_after_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - process.since)));
  killed->set_why(why);
  Send(event);
  return true;
}

void KeeperLoop::LimitLeftovers(absl::Duration time) {
  leftovers_stay_ = false;
  leftovers_.Shorten(clock_.At(MonotonicNow()), time);
}

void KeeperLoop::ReportLeftoversGone() {
  if (!leftovers_told_ || leftovers_.AnyDated()) return;
  leftovers_told_ = false;
  leftovers_.ForgetEmpty();
  v1::Event event;
  event.mutable_leftovers_gone();
  Send(event);
}

// Waits for the end of the leftovers and passes on what they still write. They are moved out of the
// workers' cgroup, because the next agent on this machine kills the processes of a cgroup whose
// agent is gone.
void KeeperLoop::Outlast() {
  parked_.Kill();
  seat_.cgroup.MoveOut(OwnCgroupFolder());
  for (;;) {
    siginfo_t child{};
    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | __WALL) == 0 && child.si_pid != 0) {
      child = {};
    }
    if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0) return;
    std::vector<pollfd> fds = output_rest_.Polls();
    fds.push_back({.fd = child_signals_.get(), .events = POLLIN, .revents = 0});
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    signalfd_siginfo ignored{};
    while (read(child_signals_.get(), &ignored, sizeof(ignored)) > 0) {
    }
    output_rest_.PourReadable(fds);
  }
}

// The worker that a child descends from, as Leftovers names origins.
std::string KeeperLoop::OriginOf(pid_t child) const {
  std::string tag = InitialVariable(child, kTagVariable);
  if (absl::StartsWith(tag, tag_prefix_)) return tag;
  return absl::StrCat("session ", getsid(child));
}

// Whether the worker that an orphan descends from has ended: by the tag in its environment, else by
// its session. An orphan with neither stays until the sweep, so that no live worker loses a helper.
bool KeeperLoop::IsLeftover(pid_t child) const {
  if (leftovers_.Contains(child)) return true;
  const std::string tag = InitialVariable(child, kTagVariable);
  if (!absl::StartsWith(tag, tag_prefix_)) return ended_sessions_.contains(getsid(child));
  return std::none_of(workers_.begin(), workers_.end(),
                      [&](const auto& entry) { return TagOf(entry.second) == tag; });
}

// Whether a child is a worker that the sweep leaves alone, or an orphan of such a worker's tree: by
// its tag, else by its session.
bool KeeperLoop::IsSpared(pid_t child) const {
  if (spared_.empty()) return false;
  if (spared_.contains(child)) return true;
  if (workers_.contains(child)) return false;
  const std::string tag = InitialVariable(child, kTagVariable);
  if (!absl::StartsWith(tag, tag_prefix_)) return spared_.contains(getsid(child));
  return std::any_of(spared_.begin(), spared_.end(),
                     [&](pid_t pid) { return TagOf(workers_.at(pid)) == tag; });
}

// The tag has our pid, because a worker may run a ddprun of its own.
std::string KeeperLoop::TagOf(uint64_t generation, uint32_t local_rank) const {
  return absl::StrCat(tag_prefix_, generation, ".", local_rank);
}

std::string KeeperLoop::TagOf(const Worker& worker) const {
  return TagOf(worker.tag_generation, worker.local_rank);
}

void KeeperLoop::FinishSweep() {
  if (children_left_ || parked_.Forking()) return;
  leftovers_.ForgetEmpty();
  const std::vector<Leftovers::Process> left = leftovers_.Left();
  for (const uint64_t generation : sweeps_) {
    v1::Event event;
    event.mutable_empty()->set_generation(generation);
    event.mutable_empty()->set_swept(killed_);
    event.mutable_empty()->set_left_count(static_cast<uint32_t>(left.size()));
    for (const Leftovers::Process& process : left) {
      if (!process.cleans && event.empty().left_size() < static_cast<int>(kLeftoversNamed)) {
        Fill(process, event.mutable_empty()->add_left());
      }
    }
    Send(event);
  }
  leftovers_told_ |= !left.empty();
  leftovers_killed_ = 0;
  if (kill_rounds_ >= kRoundsBeforeCgroup) seat_.cgroup.Renew();
  kill_rounds_ = 0;
  // Leftovers may still write, so keep the ends while there are any.
  if (!agent_lost_ && left.empty()) {
    std::set<uint32_t> spared;
    for (const pid_t pid : spared_) spared.insert(workers_.at(pid).local_rank);
    output_rest_.ClearAllBut(spared);
  }
  sweeps_.clear();
  ended_sessions_.clear();
  killed_ = 0;
}

}  // namespace ddprun::launcher
