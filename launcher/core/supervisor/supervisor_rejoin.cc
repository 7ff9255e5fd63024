#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/core/supervisor/supervisor.h"

// Workers that outlive their generation in their process (R3).
namespace ddprun::launcher {

void Supervisor::On(const WorkerCanRejoin& event) {
  if (event.generation != group_.generation()) return;
  group_.OnCanRejoin(event.local_rank, event.can, event.same_place);
}

// Starts the generation. Kept workers that depend on a place that has changed are killed before, as
// they could only fail in it.
void Supervisor::Take(const rendezvous::Assignment& assignment) {
  const bool moves =
      assignment.base_rank != group_.base_rank() || assignment.world_size != world_size_;
  if (!moves || !group_.KeepsPlaces()) return Spawn(assignment);
  next_assignment_ = assignment;
  Apply(group_.DropKept(now_, real_now_), assignment.reason);
}

void Supervisor::On(const WorkerLetGo& event) {
  if (event.generation != group_.generation()) return;
  Apply(group_.OnLetGo(now_, event.local_rank), group_.why());
  StopWhenSettled();
}

// At a stop step (R14) some workers end; others save and let go of their generation.
void Supervisor::StopWhenSettled() {
  if (!stop_.committed() || !Runs(group_.generation()) || !group_.AllSettled()) return;
  StopGroup(departure_.is_going() ? departure_.signal() : SIGTERM, std::string(group_.why()));
}

// A node that is taken away, or ends, keeps no worker.
bool Supervisor::MayRejoin() const {
  return phase_ != Phase::kEnding && phase_ != Phase::kEnded && !departure_.is_going();
}

void Supervisor::Signal(const std::string& why) {
  const std::vector<uint32_t> late = NotifyLate();
  SignalGroup signal{.generation = group_.generation(),
                     .signal = group_.stop_signal(),
                     .stops = !Runs(group_.generation()),
                     .why = why};
  if (late.empty()) {
    signal.spared = group_.spared();
  } else {
    signal.signal = SIGKILL;
    for (uint32_t local_rank = 0; local_rank < stream_.node().worker_count; ++local_rank) {
      if (std::find(late.begin(), late.end(), local_rank) == late.end()) {
        signal.spared.push_back(local_rank);
      }
    }
  }
  // A worker that is blocked on a key of a store would miss the deadline for letting go.
  if (signal.stops && !group_.spared().empty()) EndStores(why);
  effects_.push_back(std::move(signal));
}

// The workers that are killed: because they haven't let go of a generation that is stopped in time,
// or have let go of one that didn't end.
std::vector<uint32_t> Supervisor::NotifyLate() {
  std::vector<uint32_t> late = group_.TakeLate();
  const bool forsaken = Runs(group_.generation());
  const absl::Duration bound = forsaken ? kForsakenBound : LetGoBound();
  for (const uint32_t local_rank : late) {
    RecordFact(forsaken ? "forsaken" : "let_go_late",
               {{"generation", absl::StrCat(group_.generation().value())},
                {"local_rank", absl::StrCat(local_rank)},
                {"worker_pid", absl::StrCat(group_.pid(local_rank))},
                {"waited_ms", absl::StrCat(absl::ToInt64Milliseconds(bound))},
                {"then", "killed"}});
    Notify(NotifyUser::Level::kWarning,
           absl::StrCat("rank ", group_.base_rank() + local_rank, " (pid ", group_.pid(local_rank),
                        forsaken ? ") let go of generation " : ") has not let go of generation ",
                        group_.generation().value(),
                        forsaken ? ", which has not ended within " : " within ",
                        absl::FormatDuration(bound), ": it is killed and started anew"));
  }
  return late;
}

absl::Duration Supervisor::LetGoBound() const {
  return std::min(kLetGoBound, stream_.job().stop_grace);
}

// "; rank 1 (pid 123) goes on without a restart".
std::string Supervisor::KeptText(const rendezvous::Assignment& assignment) const {
  const std::vector<uint32_t> kept = group_.spared();
  if (kept.empty()) return "";
  const std::string names = absl::StrJoin(kept, ", ", [&](std::string* text, uint32_t local_rank) {
    absl::StrAppend(text, assignment.base_rank + local_rank, " (pid ", group_.pid(local_rank), ")");
  });
  return absl::StrCat("; rank", kept.size() == 1 ? " " : "s ", names,
                      kept.size() == 1 ? " goes" : " go", " on without a restart");
}

// A kept worker has ended between two generations.
void Supervisor::OnKeptEnded(const WorkerEnd& end) {
  const std::vector<uint32_t> kept = group_.spared();
  if (std::find(kept.begin(), kept.end(), end.local_rank) == kept.end()) return;
  group_.OnEnded(now_, end);
  Notify(NotifyUser::Level::kWarning,
         absl::StrCat(WorkerEndText(end, group_.base_rank()),
                      " while it waited for the next generation, for which it is started anew"));
}

// Kills workers that were kept for a next generation, because none comes.
void Supervisor::SweepKept() {
  if (group_.phase() != WorkerGroup::Phase::kIdle) return;
  Apply(group_.DropKept(now_, real_now_), ending_.why());
}

}  // namespace ddprun::launcher
