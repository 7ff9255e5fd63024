#include "launcher/core/supervisor/worker_group.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/signal_name.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/hang_evidence.h"

namespace ddprun::launcher {
namespace {

// R3: what outlives KILL for so long makes the node unclean.
constexpr absl::Duration kSweepBound = absl::Seconds(5);

}  // namespace

std::string DescribeEnd(const WorkerEnd& end) {
  if (!end.start_error.empty()) return absl::StrCat("could not be started: ", end.start_error);
  if (end.hung && absl::StrContains(end.message, rendezvous::kTiedEvidence)) {
    return absl::StrCat("hangs as others do: ", end.message);
  }
  if (end.hung) return absl::StrCat("hangs: ", end.message);
  if (end.preflight) return "stopped the job in its preflight";
  if (end.signal == 0) return absl::StrCat("exited with status ", end.exit_code);
  return absl::StrCat("was killed by ", SignalName(end.signal),
                      end.core_dumped ? " (core dumped)" : "");
}

void WorkerGroup::Begin(rendezvous::Generation generation, uint32_t base_rank,
                        uint32_t worker_count) {
  DDPRUN_CHECK(phase_ == Phase::kIdle, "a group begins only after the last one is empty");
  *this = WorkerGroup();
  phase_ = Phase::kRunning;
  generation_ = generation;
  base_rank_ = base_rank;
  workers_.resize(worker_count);
}

bool WorkerGroup::OnStarted(uint32_t local_rank, uint32_t pid) {
  if (phase_ == Phase::kIdle || local_rank >= workers_.size()) return false;
  Worker& worker = workers_[local_rank];
  if (worker.started) return false;
  worker.started = true;
  worker.pid = pid;
  ++started_;
  return started_ == workers_.size() && phase_ == Phase::kRunning;
}

GroupAction WorkerGroup::OnEnded(Instant now, const WorkerEnd& end) {
  if (phase_ == Phase::kIdle || end.local_rank >= workers_.size()) return GroupAction::kNone;
  Worker& worker = workers_[end.local_rank];
  if (worker.ended) return GroupAction::kNone;
  worker.ended = true;
  ++ended_;
  // What ended after our signal went out is our doing, whatever its status says (R12).
  const bool own_failure = !end.ok() && (!stop_requested_ || end.seen < stop_began_);
  std::vector<WorkerEnd>& list = own_failure ? failures_ : stopped_;
  if (!end.ok() && list.size() < rendezvous::kFailuresMax) list.push_back(end);
  if (ended_ < workers_.size() || phase_ == Phase::kSweeping) return GroupAction::kNone;
  // Not from when it was seen: we may have been held up since.
  return Sweep(now);
}

GroupAction WorkerGroup::Stop(Instant now, Instant sent, int signal_number, absl::Duration grace) {
  if (phase_ != Phase::kRunning) {
    stop_requested_ = stop_requested_ || phase_ == Phase::kSweeping;
    return GroupAction::kNone;
  }
  phase_ = Phase::kStopping;
  stop_requested_ = true;
  stop_signal_ = signal_number;
  stop_began_ = sent;
  grace_end_ = now + grace;
  return GroupAction::kSignal;
}

GroupAction WorkerGroup::KillNow(Instant now, Instant sent) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) return GroupAction::kNone;
  if (!stop_requested_) stop_began_ = sent;
  stop_requested_ = true;
  return Sweep(now);
}

GroupAction WorkerGroup::OnTimer(Instant now, Instant sent) {
  if (phase_ == Phase::kStopping && now >= grace_end_) return KillNow(now, sent);
  if (phase_ == Phase::kSweeping && now >= sweep_end_) {
    unclean_ = true;
    sweep_end_ = Instant::Infinite();
  }
  return GroupAction::kNone;
}

GroupAction WorkerGroup::Sweep(Instant now) {
  phase_ = Phase::kSweeping;
  sweep_end_ = now + kSweepBound;
  return GroupAction::kSweep;
}

void WorkerGroup::OnEmpty() {
  DDPRUN_CHECK(phase_ == Phase::kSweeping, "only a swept group is empty");
  phase_ = Phase::kIdle;
  why_.clear();
}

void WorkerGroup::Explain(std::string why) {
  DDPRUN_CHECK(phase_ == Phase::kRunning, "only workers that run are about to be stopped");
  why_ = std::move(why);
}

Instant WorkerGroup::Deadline() const {
  switch (phase_) {
    case Phase::kStopping:
      return grace_end_;
    case Phase::kSweeping:
      return sweep_end_;
    case Phase::kIdle:
    case Phase::kRunning:
      break;
  }
  return Instant::Infinite();
}

bool WorkerGroup::succeeded() const {
  return ended_ == workers_.size() && failures_.empty() && !stop_requested_;
}

rendezvous::WorkerFailure WorkerGroup::Describe(const WorkerEnd& end,
                                                const rendezvous::NodeId& node_id,
                                                const std::string& hostname) const {
  rendezvous::WorkerFailure failure;
  failure.rank = base_rank_ + end.local_rank;
  failure.local_rank = end.local_rank;
  failure.node_id = node_id;
  failure.hostname = hostname;
  failure.pid = end.pid;
  failure.exit_code = end.exit_code;
  failure.signal = end.signal;
  failure.core_dumped = end.core_dumped;
  failure.start_error = end.start_error;
  failure.message = end.message;
  failure.traceback = end.traceback;
  failure.error_file = end.error_file;
  failure.stderr_tail = end.stderr_tail;
  failure.facts = end.facts;
  failure.wall_time_ms = end.wall_time_ms;
  if (!failures_.empty() && end.seen > failures_.front().seen) {
    failure.after_first_ms =
        static_cast<uint64_t>(absl::ToInt64Milliseconds(end.seen - failures_.front().seen));
  }
  failure.generation = generation_;
  failure.hung = end.hung;
  failure.preflight = end.preflight;
  return failure;
}

std::string WorkerGroup::BrokenInvariant() const {
  const auto started = std::count_if(workers_.begin(), workers_.end(),
                                     [](const Worker& worker) { return worker.started; });
  const auto ended = std::count_if(workers_.begin(), workers_.end(),
                                   [](const Worker& worker) { return worker.ended; });
  if (started != started_ || ended != ended_) return "workers are counted wrongly";
  const bool runs = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  if (runs && ended_ == workers_.size()) return "all workers ended, and aren't swept";
  if (phase_ == Phase::kStopping && !stop_requested_) return "workers stop without being asked";
  if (!stop_began_.is_infinite() && !stop_requested_) return "a stop began that nobody asked for";
  if (phase_ == Phase::kIdle && !why_.empty()) return "a stop is explained that is over";
  if (std::max(failures_.size(), stopped_.size()) > rendezvous::kFailuresMax) {
    return "more failures are kept than are told";
  }
  return "";
}

}  // namespace ddprun::launcher
