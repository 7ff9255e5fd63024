#include "launcher/core/supervisor/worker_group.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {
namespace {

// R3: a process that outlives SIGKILL for this long makes the node unclean.
constexpr absl::Duration kSweepBound = absl::Seconds(5);

}  // namespace

std::string DescribeEnd(const WorkerEnd& end) {
  if (!end.start_error.empty()) return absl::StrCat("could not be started: ", end.start_error);
  if (end.hung && absl::StrContains(end.message, rendezvous::kTiedEvidence)) {
    return absl::StrCat("hangs as others do: ", end.message);
  }
  if (end.hung) return absl::StrCat("hangs: ", end.message);
  if (end.preflight) return "stopped the job in its preflight";
  if (end.signal == 0) return absl::StrCat("exited with code ", end.exit_code);
  return absl::StrCat("was killed by ", SignalName(end.signal),
                      end.core_dumped ? " (core dumped)" : "");
}

void WorkerGroup::Begin(rendezvous::Generation generation, uint32_t base_rank,
                        uint32_t worker_count) {
  DDPRUN_CHECK(phase_ == Phase::kIdle, "a group begins only after the last one is empty");
  const std::vector<uint32_t> kept = spared();
  std::vector<Worker> before = std::move(workers_);
  *this = WorkerGroup();
  phase_ = Phase::kRunning;
  generation_ = generation;
  base_rank_ = base_rank;
  workers_.resize(worker_count);
  for (const uint32_t local_rank : kept) {
    if (local_rank >= worker_count) continue;
    workers_[local_rank] = {.kept = true, .can_rejoin = true, .pid = before[local_rank].pid};
    workers_[local_rank].same_place = before[local_rank].same_place;
  }
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
  if (end.local_rank >= workers_.size()) return GroupAction::kNone;
  Worker& worker = workers_[end.local_rank];
  if (worker.ended) return GroupAction::kNone;
  if (phase_ == Phase::kIdle && !worker.let_go) return GroupAction::kNone;
  worker.ended = true;
  worker.can_rejoin = worker.let_go = false;
  ++ended_;
  if (phase_ == Phase::kIdle) return GroupAction::kNone;
  // An end that follows our signal counts as caused by it, whatever the status (R12).
  const bool by_itself = !stop_requested_ || end.seen < stop_began_;
  if (by_itself && end.ok()) worker.left = end.seen;
  const bool is_named =
      !by_itself && failures_.size() < rendezvous::kFailuresMax && IsNamedByPeer(end);
  const bool own_failure = is_named || (by_itself && !end.ok());
  std::vector<WorkerEnd>& list = own_failure ? failures_ : stopped_;
  if (!end.ok() && list.size() < rendezvous::kFailuresMax) list.push_back(end);
  if (is_named && (end.signal == stop_signal_ || end.signal == SIGKILL)) {
    // Our signal came while the worker was already ending with its error.
    list.back().signal = 0;
    list.back().exit_code = 1;
  }
  if (phase_ == Phase::kSweeping) return GroupAction::kNone;
  // While the group runs, a worker that has let go waits for the generation's end: it isn't ended.
  const bool is_last = phase_ == Phase::kStopping ? AllSettled() : ended_ == workers_.size();
  // The bound runs from `now`, not from end.seen: we may have been held up since.
  return is_last ? Sweep(now) : GroupAction::kNone;
}

void WorkerGroup::OnCanRejoin(uint32_t local_rank, bool can, bool same_place) {
  if (phase_ != Phase::kRunning || local_rank >= workers_.size()) return;
  Worker& worker = workers_[local_rank];
  worker.can_rejoin = can && !worker.ended;
  worker.same_place = same_place;
  worker.let_go = worker.let_go && worker.can_rejoin;
}

GroupAction WorkerGroup::OnLetGo(Instant now, uint32_t local_rank) {
  const bool runs = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  if (!runs || local_rank >= workers_.size()) return GroupAction::kNone;
  Worker& worker = workers_[local_rank];
  if (!worker.let_go && worker.can_rejoin && phase_ == Phase::kRunning) {
    forsaken_end_ = std::min(forsaken_end_, now + kForsakenBound);
  }
  worker.let_go = worker.can_rejoin;
  return phase_ == Phase::kStopping && AllSettled() ? Sweep(now) : GroupAction::kNone;
}

void WorkerGroup::SpareNobody() {
  DDPRUN_CHECK(phase_ != Phase::kStopping,
               "a worker that was asked to let go isn't signalled later");
  for (Worker& worker : workers_) worker.can_rejoin = worker.let_go = false;
}

bool WorkerGroup::KeepsPlaces() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.can_rejoin && worker.same_place; });
}

GroupAction WorkerGroup::DropKept(Instant now, Instant sent) {
  DDPRUN_CHECK(phase_ == Phase::kIdle, "workers are kept from one generation to the next");
  if (spared().empty()) return GroupAction::kNone;
  SpareNobody();
  if (!std::exchange(stop_requested_, true)) stop_began_ = sent;
  return Sweep(now);
}

GroupAction WorkerGroup::Stop(Instant now, Instant sent, int signal_number, absl::Duration grace) {
  if (phase_ != Phase::kRunning) {
    stop_requested_ = stop_requested_ || phase_ == Phase::kSweeping;
    return GroupAction::kNone;
  }
  phase_ = Phase::kStopping;
  forsaken_end_ = Instant::Infinite();
  stop_requested_ = true;
  stop_signal_ = signal_number;
  stop_began_ = sent;
  if (AllSettled()) return Sweep(now);
  grace_end_ = now + grace;
  if (!spared().empty()) let_go_end_ = now + std::min(grace, kLetGoBound);
  return GroupAction::kSignal;
}

GroupAction WorkerGroup::CutGrace() {
  if (phase_ != Phase::kStopping || stop_signal_ == SIGKILL) return GroupAction::kNone;
  stop_signal_ = SIGKILL;
  grace_end_ = std::min(grace_end_, let_go_end_);
  return GroupAction::kSignal;
}

GroupAction WorkerGroup::KillNow(Instant now, Instant sent) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kStopping) return GroupAction::kNone;
  if (!stop_requested_) stop_began_ = sent;
  stop_requested_ = true;
  return Sweep(now);
}

GroupAction WorkerGroup::OnTimer(Instant now, Instant sent) {
  if (now >= std::min(let_go_end_, forsaken_end_)) {
    let_go_end_ = forsaken_end_ = Instant::Infinite();
    GiveUpLate();
    if (now < grace_end_ && !late_.empty()) return GroupAction::kSignal;
  }
  if (phase_ == Phase::kStopping && now >= grace_end_) return KillNow(now, sent);
  if (phase_ == Phase::kSweeping && now >= sweep_end_) {
    unclean_ = true;
    sweep_end_ = Instant::Infinite();
  }
  return GroupAction::kNone;
}

// Gives up workers that haven't let go of a stopped generation, or have let go of a running one.
void WorkerGroup::GiveUpLate() {
  for (uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    Worker& worker = workers_[local_rank];
    if (!worker.can_rejoin || worker.let_go == (phase_ == Phase::kStopping)) continue;
    worker.can_rejoin = worker.let_go = false;
    late_.push_back(local_rank);
  }
}

GroupAction WorkerGroup::Sweep(Instant now) {
  phase_ = Phase::kSweeping;
  let_go_end_ = forsaken_end_ = Instant::Infinite();
  sweep_end_ = now + kSweepBound;
  // A worker that hasn't let go by now is swept with the others.
  for (Worker& worker : workers_) worker.can_rejoin = worker.let_go;
  return GroupAction::kSweep;
}

// Whether there is no worker to wait for.
bool WorkerGroup::AllSettled() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.ended || worker.let_go; });
}

std::vector<uint32_t> WorkerGroup::TakeLate() { return std::exchange(late_, {}); }

std::vector<uint32_t> WorkerGroup::spared() const {
  std::vector<uint32_t> spared;
  for (uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (workers_[local_rank].can_rejoin) spared.push_back(local_rank);
  }
  return spared;
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
      return std::min(grace_end_, let_go_end_);
    case Phase::kSweeping:
      return sweep_end_;
    case Phase::kRunning:
      return forsaken_end_;
    case Phase::kIdle:
      break;
  }
  return Instant::Infinite();
}

bool WorkerGroup::succeeded() const {
  return ended_ == workers_.size() && failures_.empty() && !stop_requested_;
}

std::vector<uint32_t> WorkerGroup::left() const {
  std::vector<uint32_t> left;
  for (uint32_t i = 0; i < workers_.size() && left.size() < rendezvous::kFailuresMax; ++i) {
    if (!workers_[i].left.is_infinite()) left.push_back(i);
  }
  return left;
}

// A worker of our C++ runtime sends its error to its peers before it ends. A peer may end first,
// and then we signal the worker, although its error is the cause. The peers' PeerError names it.
bool WorkerGroup::IsNamedByPeer(const WorkerEnd& end) const {
  constexpr const char* kPeerError = "PeerError: ";
  if (end.ok() || end.message.empty() || absl::StartsWith(end.message, kPeerError)) return false;
  const std::string name = absl::StrCat(kPeerError, "rank ", base_rank_ + end.local_rank, " ");
  return std::any_of(failures_.begin(), failures_.end(), [&](const WorkerEnd& failure) {
    return absl::StartsWith(failure.message, name);
  });
}

// Ranks that wait for a rank that has ended fail with "connection closed by peer". An end with
// status 0 isn't a failure, so nothing else in the report names that rank.
std::string WorkerGroup::LeftFact(const WorkerEnd& end) const {
  constexpr size_t kRanksNamed = 4;
  std::vector<std::string> names;
  Instant first = Instant::Infinite();
  for (uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    if (workers_[local_rank].left > end.seen) continue;
    names.push_back(absl::StrCat(base_rank_ + local_rank));
    first = std::min(first, workers_[local_rank].left);
  }
  if (names.empty()) return "";
  const bool one = names.size() == 1;
  const size_t more = names.size() - std::min(names.size(), kRanksNamed);
  names.resize(names.size() - more);
  return absl::StrCat(rendezvous::kLeftFact, one ? "rank " : "ranks ", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      " had ended with status 0, ", one ? "" : "the first of them ",
                      absl::FormatDuration(absl::Trunc(end.seen - first, absl::Milliseconds(1))),
                      " before");
}

rendezvous::WorkerFailure WorkerGroup::Describe(const WorkerEnd& end,
                                                const rendezvous::NodeId& node_id,
                                                const std::string& hostname) const {
  rendezvous::WorkerFailure failure = end;
  failure.rank = base_rank_ + end.local_rank;
  failure.node_id = node_id;
  failure.hostname = hostname;
  failure.generation = generation_;
  if (std::string fact = LeftFact(end); !fact.empty()) failure.facts.push_back(std::move(fact));
  if (!failures_.empty() && end.seen > failures_.front().seen) {
    failure.after_first_ms =
        static_cast<uint64_t>(absl::ToInt64Milliseconds(end.seen - failures_.front().seen));
  }
  return failure;
}

std::string WorkerGroup::BrokenInvariant() const {
  const auto started = std::count_if(workers_.begin(), workers_.end(),
                                     [](const Worker& worker) { return worker.started; });
  const auto ended = std::count_if(workers_.begin(), workers_.end(),
                                   [](const Worker& worker) { return worker.ended; });
  if (started != started_ || ended != ended_) return "workers are counted wrongly";
  for (const Worker& worker : workers_) {
    if (worker.let_go && !worker.can_rejoin) return "a worker let go that can't rejoin";
    if (worker.ended && worker.can_rejoin) return "a worker that has ended rejoins";
  }
  const bool runs = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  if (runs && ended_ == workers_.size()) return "all workers ended, and aren't swept";
  if (phase_ == Phase::kStopping && AllSettled())
    return "nobody is waited for, and all is not swept";
  if (!let_go_end_.is_infinite() && phase_ != Phase::kStopping) {
    return "workers are to let go of what isn't stopped";
  }
  if (!forsaken_end_.is_infinite() && phase_ != Phase::kRunning) {
    return "workers have let go of what doesn't run";
  }
  if (phase_ == Phase::kStopping && !stop_requested_) return "workers stop without being asked";
  if (!stop_began_.is_infinite() && !stop_requested_) return "a stop began that nobody asked for";
  if (phase_ == Phase::kIdle && !why_.empty()) return "a stop is explained that is over";
  if (std::max(failures_.size(), stopped_.size()) > rendezvous::kFailuresMax) {
    return "more failures are kept than are reported";
  }
  return "";
}

}  // namespace ddprun::launcher
