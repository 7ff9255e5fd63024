#include "worker/torch/session/saver.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

// A bound, because steps may become longer, as after a warm-up.
constexpr int64_t kMostSteps = 1000;

}  // namespace

void SaveClock::Restart(Instant now) {
  began_ = now;
  steps_ = 0;
  until_asked_ = 1;
}

bool SaveClock::StepIsDone() {
  if (interval_ <= absl::ZeroDuration()) return false;
  ++steps_;
  return --until_asked_ <= 0;
}

int64_t SaveClock::StepsToWait(Instant now) const {
  const absl::Duration passed = now - began_;
  if (passed >= interval_) return 0;
  const absl::Duration step = passed / std::max<int64_t>(steps_, 1);
  const absl::Duration half = (interval_ - passed) / 2;
  if (step <= half / kMostSteps) return kMostSteps;
  return std::max<int64_t>(1, static_cast<int64_t>(absl::FDivDuration(half, step)));
}

void Saver::BeginGeneration() {
  saved_.reset();
  clock_ = SaveClock(absl::Minutes(options_.checkpoint_minutes));
  clock_.Restart(MonotonicNow());
}

// A count of steps is the same on all ranks; of the clocks rank 0's counts, and the ranks gather
// its answer at the steps that SaveClock names, which are the same on all of them.
absl::StatusOr<bool> Saver::IsDue(Context& context, int64_t step) {
  if (checkpointer_ == nullptr) return false;
  const int64_t every = options_.checkpoint_every;
  const bool asks = clock_.StepIsDone();
  if (every > 0 && step % every == 0) return true;
  if (!asks) return false;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> answers,
                          GatherNumber(context, clock_.StepsToWait(MonotonicNow())));
  clock_.TakeAnswer(answers[0]);
  return answers[0] == 0;
}

// The error of a write that was begun earlier isn't one of the evaluation: Wait() decides what it
// means.
absl::StatusOr<bool> Saver::IsBest(double score) {
  DDPRUN_RETURN_IF_ERROR(Wait());
  return checkpointer_ != nullptr ? checkpointer_->IsBest(score) : false;
}

absl::Status Saver::Save(const TrainingProgress& progress, std::optional<double> score) {
  if (options_.checkpoint_errors == "warn") DDPRUN_RETURN_IF_ERROR(Wait());
  DDPRUN_RETURN_IF_ERROR(Tolerate(checkpointer_->SaveAsync(progress, score)));
  saved_ = progress;
  clock_.Restart(MonotonicNow());
  return absl::OkStatus();
}

absl::Status Saver::Wait() {
  return checkpointer_ != nullptr ? Tolerate(checkpointer_->Wait()) : absl::OkStatus();
}

absl::Status Saver::Tolerate(absl::Status saved_or_not) const {
  const bool is_peers = absl::StartsWith(saved_or_not.message(), kPeerErrorPrefix);
  if (saved_or_not.ok() || is_peers || options_.checkpoint_errors != "warn") return saved_or_not;
  Log(LogLevel::kWarning, absl::StrCat("training goes on without a checkpoint that couldn't be "
                                       "written: ",
                                       saved_or_not.message()));
  return absl::OkStatus();
}

}  // namespace ddprun::worker
