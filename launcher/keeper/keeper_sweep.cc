#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/keeper/keeper_loop.h"
#include "launcher/os/child_processes.h"

// How the keeper empties its tree, and who is left alone in that.
namespace ddprun::launcher {
namespace {

namespace v1 = keeper::v1;

// A tree that isn't gone after so many rounds of kills forks faster than it dies.
constexpr int kRoundsBeforeCgroup = 64;

}  // namespace

void KeeperLoop::OnSweep(const v1::Sweep& sweep) {
  sweeps_.insert(sweep.generation());
  spared_.clear();
  const std::set<uint32_t> spared(sweep.spared().begin(), sweep.spared().end());
  for (const auto& [pid, worker] : workers_) {
    if (worker.generation != sweep.generation()) continue;
    if (spared.contains(worker.local_rank)) spared_.insert(pid);
  }
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

// Requires: no child waits to be reaped. A process joins the list of our children before its parent
// can be reaped, and leaves it only when we reap it, so that none is missing in it.
bool KeeperLoop::OthersThanSparedLeft() const {
  // Without an agent they have to go, too.
  if (!sweeping() || agent_lost_ || (parked_.pid() == 0 && spared_.empty())) return true;
  const std::vector<pid_t> children = DirectChildren();
  return std::any_of(children.begin(), children.end(),
                     [&](pid_t child) { return child != parked_.pid() && !IsSpared(child); });
}

// SIGKILLs all that lives; what loses its parent by that is met in the next round.
void KeeperLoop::KillAll() {
  if (++kill_rounds_ == kRoundsBeforeCgroup) seat_.cgroup.Kill();
  if (agent_lost_) parked_.Kill();
  for (const pid_t child : DirectChildren()) {
    if (child != parked_.pid() && !IsSpared(child)) KillChildAndGroup(child);
  }
}

// SIGKILLs the direct children that ended workers have left. Returns how many there were.
uint32_t KeeperLoop::KillLeftovers() {
  uint32_t count = 0;
  for (const pid_t child : DirectChildren()) {
    if (workers_.contains(child) || child == parked_.pid() || parked_.IsOnItsWay(child)) continue;
    if (IsZombie(child) || !IsLeftover(child)) continue;
    KillChildAndGroup(child);
    ++count;
  }
  return count;
}

// Whose an orphan is: by the tag in its environment, else by its session. What has neither stays
// until the sweep, so that no living worker loses a helper.
bool KeeperLoop::IsLeftover(pid_t child) const {
  const std::string tag = InitialVariable(child, kTagVariable);
  if (!absl::StartsWith(tag, tag_prefix_)) return ended_sessions_.contains(getsid(child));
  return std::none_of(workers_.begin(), workers_.end(),
                      [&](const auto& entry) { return TagOf(entry.second) == tag; });
}

// A worker that the sweep leaves alone, or what it has lost of its own tree: by its tag, else by
// its session.
bool KeeperLoop::IsSpared(pid_t child) const {
  if (spared_.empty()) return false;
  if (spared_.contains(child)) return true;
  if (workers_.contains(child)) return false;
  const std::string tag = InitialVariable(child, kTagVariable);
  if (!absl::StartsWith(tag, tag_prefix_)) return spared_.contains(getsid(child));
  return std::any_of(spared_.begin(), spared_.end(),
                     [&](pid_t pid) { return TagOf(workers_.at(pid)) == tag; });
}

// With our pid: a worker may run a ddprun of its own.
std::string KeeperLoop::TagOf(uint64_t generation, uint32_t local_rank) const {
  return absl::StrCat(tag_prefix_, generation, ".", local_rank);
}

std::string KeeperLoop::TagOf(const Worker& worker) const {
  return TagOf(worker.tag_generation, worker.local_rank);
}

void KeeperLoop::FinishSweep() {
  if (children_left_ || parked_.Forking()) return;
  for (const uint64_t generation : sweeps_) {
    v1::Event event;
    event.mutable_empty()->set_generation(generation);
    event.mutable_empty()->set_swept(killed_);
    Send(event);
  }
  if (kill_rounds_ >= kRoundsBeforeCgroup) seat_.cgroup.Renew();
  kill_rounds_ = 0;
  if (!agent_lost_) {
    std::set<uint32_t> spared;
    for (const pid_t pid : spared_) spared.insert(workers_.at(pid).local_rank);
    output_rest_.ClearAllBut(spared);
  }
  sweeps_.clear();
  ended_sessions_.clear();
  killed_ = 0;
}

}  // namespace ddprun::launcher
