#include "worker/torch/session/healing_step.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

// How many bytes of state a second are sent, decoded and restored while all ranks wait
// (bench/healing_bench.py measured 0.2e9 on two busy cores).
constexpr double kBytesPerSecond = 0.5e9;
// The cost of the extra connections beside a step.
constexpr absl::Duration kConnectTime = absl::Milliseconds(20);

}  // namespace

bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners) {
  const absl::Duration before = absl::Seconds(static_cast<double>(bytes) / kBytesPerSecond);
  return before > kConnectTime + step_time * missing / learners;
}

absl::StatusOr<std::unique_ptr<HealingStep>> HealingStep::Begin(Context& context,
                                                                const ReplicatedState& state,
                                                                const KnownStates& known,
                                                                TrainingCourse& course,
                                                                SampleFeed& feed) {
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Healing> healing, Healing::Begin(context, state, known));
  DDPRUN_RETURN_IF_ERROR(feed.Reform(healing->learner(), healing->learners()));
  auto step = absl::WrapUnique(new HealingStep(context, course, std::move(healing)));
  course.GoTo(known.newest->progress);
  return step;
}

void HealingStep::Weigh(SampleFeed::Step& step) const {
  // Gradients are divided by the number of all ranks.
  const double all = static_cast<double>(context_.world_size()) / healing_->learners();
  for (Pass& one : step.batch) {
    one.weight *= healing_->takes() ? 0 : all;
    if (healing_->takes()) one.share = 0;
  }
  if (healing_->takes()) step.share.indices.clear();
}

absl::Status HealingStep::Finish() {
  const Instant asked = MonotonicNow();
  absl::Status finished = healing_->Finish();
  Log(LogLevel::kInfo, absl::StrCat("rank ", context_.rank(), " waited ",
                                    absl::ToInt64Milliseconds(MonotonicNow() - asked),
                                    " ms, after its passes, for new workers to have the state"));
  NoteTaken();
  return finished;
}

absl::Status HealingStep::Abandon() {
  DDPRUN_RETURN_IF_ERROR(healing_->Abandon());
  NoteTaken();
  if (healing_->takes() && !healing_->has_taken()) course_.GoTo(before_);
  return absl::OkStatus();
}

void HealingStep::NoteTaken() {
  if (healing_->has_taken()) course_.HasState(healing_->version().generation);
}

}  // namespace ddprun::worker
