#include "launcher/agent/worker_notices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/address.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

// Most ranks named in one line: for each one the state of its threads is read.
constexpr size_t kNamedMax = 4;

}  // namespace

WorkerNotices::WorkerNotices(EventLoop* loop, const LaunchPlan* plan, Hooks hooks)
    : loop_(loop), plan_(plan), hooks_(std::move(hooks)), timer_(loop, [this] { OnTimer(); }) {}

void WorkerNotices::Begin(const rendezvous::Assignment& assignment) {
  assignment_ = assignment;
  pids_.assign(plan_->worker_count, 0);
  roll_.Begin(assignment.world_size, plan_->worker_count);
  laggards_.Begin(plan_->worker_count);
  Arm();
}

void WorkerNotices::OnStarted(uint32_t local_rank, pid_t pid) {
  if (local_rank < pids_.size()) pids_[local_rank] = pid;
}

void WorkerNotices::OnEnded(uint32_t local_rank, bool well) {
  if (local_rank >= pids_.size()) return;
  pids_[local_rank] = 0;
  roll_.OnEnded(local_rank);
  laggards_.OnEnded(loop_->Now(), local_rank, well);
  if (!well) return Stop();
  Arm();
}

void WorkerNotices::Stop() {
  pids_.clear();
  laggards_.Stop();
  timer_.Disarm();
}

void WorkerNotices::OnStoreClient(const StoreClient& client) {
  if (pids_.empty() || client.pid == uint32_t{0}) return;  // 0: an agent's own question
  if (!client.pid.has_value()) {
    roll_.OnUnknown();
  } else if (!client.of_this_machine) {
    roll_.OnRemote(loop_->Now(), absl::StrCat(client.host, "#", *client.pid));
  } else {
    // A worker may be a shell that runs the program; another agent's worker is of another node.
    auto found = pids_.end();
    FindAncestor(static_cast<pid_t>(*client.pid), [&](pid_t pid) {
      found = std::find(pids_.begin(), pids_.end(), pid);
      return found != pids_.end();
    });
    if (found != pids_.end()) {
      roll_.OnLocal(loop_->Now(), static_cast<uint32_t>(found - pids_.begin()));
    } else if (plan_->job.nodes_max > 1) {
      roll_.OnRemote(loop_->Now(), absl::StrCat("#", *client.pid));
    } else {
      roll_.OnUnknown();
    }
  }
  Arm();
}

void WorkerNotices::OnOthersEnded(const std::string& evidence) {
  std::vector<uint32_t> running;
  for (uint32_t i = 0; i < pids_.size(); ++i) {
    if (pids_[i] != 0) running.push_back(i);
  }
  if (running.size() == pids_.size()) NameLaggards(running, evidence);
}

void WorkerNotices::Arm() {
  if (pids_.empty()) return;
  timer_.Arm(std::min(roll_.Deadline(), laggards_.Deadline()));
}

void WorkerNotices::OnTimer() {
  const Instant now = loop_->Now();
  if (const StoreRoll::Missing missing = roll_.OnTimer(now); missing.any()) NameMissing(missing);
  NameLaggards(laggards_.OnTimer(now),
               absl::StrCat("the other ranks", plan_->job.nodes_max > 1 ? " of this node" : ""));
  Arm();
}

void WorkerNotices::NameMissing(const StoreRoll::Missing& missing) {
  std::vector<std::string> ranks;
  std::vector<std::string> shown;
  for (const uint32_t local_rank : missing.local_ranks) {
    const uint32_t rank = assignment_.base_rank + local_rank;
    ranks.push_back(absl::StrCat(rank));
    if (shown.size() == kNamedMax) continue;
    const std::string where = hooks_.where(local_rank);
    shown.push_back(
        absl::StrCat("rank ", rank, where.empty() ? "" : absl::StrCat(" (", where, ")")));
  }
  if (ranks.size() > shown.size()) {
    shown.push_back(absl::StrCat(ranks.size() - shown.size(), " more of this node"));
  }
  if (missing.elsewhere > 0) {
    shown.push_back(absl::StrCat(CountText(missing.elsewhere, "rank"), " of other nodes"));
  }
  const std::string place =
      HostPort(assignment_.master_addr, static_cast<int>(assignment_.master_port));
  Notify(absl::StrCat("ranks wait at the workers' store (", place,
                      ", MASTER_ADDR and MASTER_PORT) "
                      "for others that haven't come within ",
                      absl::FormatDuration(StoreRoll::kMissingAfter), ": ",
                      absl::StrJoin(shown, ", "),
                      ". Does the script set MASTER_ADDR or MASTER_PORT, or do they still load "
                      "data? Nothing is ended"));
  hooks_.record("store_missing", {{"generation", absl::StrCat(assignment_.generation.value())},
                                  {"ranks", absl::StrJoin(ranks, ",")},
                                  {"elsewhere", absl::StrCat(missing.elsewhere)}});
}

void WorkerNotices::NameLaggards(const std::vector<uint32_t>& local_ranks,
                                 const std::string& evidence) {
  if (local_ranks.empty()) return;
  std::vector<std::string> ranks;
  std::vector<std::string> shown;
  for (const uint32_t local_rank : local_ranks) {
    const uint32_t rank = assignment_.base_rank + local_rank;
    ranks.push_back(absl::StrCat(rank));
    if (shown.size() == kNamedMax) continue;
    const std::string where = hooks_.where(local_rank);
    shown.push_back(absl::StrCat("rank ", rank, " (pid ", pids_[local_rank],
                                 where.empty() ? "" : absl::StrCat("; ", where), ")"));
  }
  if (ranks.size() > shown.size()) {
    shown.push_back(absl::StrCat(ranks.size() - shown.size(), " more"));
  }
  Notify(absl::StrCat(absl::FormatDuration(Laggards::kLaggardsAfter), " after ", evidence,
                      " ended with status 0, ", absl::StrJoin(shown, ", "),
                      ranks.size() == 1 ? " still runs" : " still run", "; nothing is ended"));
  hooks_.record("still_running", {{"generation", absl::StrCat(assignment_.generation.value())},
                                  {"ranks", absl::StrJoin(ranks, ",")},
                                  {"where", absl::StrJoin(shown, ", ")}});
}

}  // namespace ddprun::launcher
