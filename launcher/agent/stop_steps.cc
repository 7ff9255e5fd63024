#include "launcher/agent/stop_steps.h"

#include <algorithm>
#include <utility>

namespace ddprun::launcher {
namespace {

// The time between two looks: a million times longer than a store stays in a processor's buffer.
constexpr absl::Duration kSettle = absl::Milliseconds(10);

}  // namespace

StopSteps::StopSteps(EventLoop* loop, HangMonitor* monitor,
                     std::function<void(StopStepLooked)> looked)
    : loop_(loop),
      monitor_(monitor),
      looked_(std::move(looked)),
      timer_(std::make_unique<Timer>(loop, [this] { LookAgain(); })) {}

void StopSteps::Begin() {
  timer_->Disarm();
  prepared_ = 0;
  committed_ = 0;
}

void StopSteps::Do(const LookAtStopStep& request) {
  // Doesn't touch timer_: the second look of a round may still be due.
  if (request.round == 0) return looked_(Look(request));
  timer_->Disarm();
  request_ = request;
  ProgressPages* pages = monitor_->pages();
  if (pages != nullptr && request.step > prepared_) {
    prepared_ = request.step;
    pages->PrepareStop(prepared_);
  }
  const StopStepLooked first = Look(request);
  if (request.step == 0 || !first.look.heeds || !first.look.below) return looked_(first);
  timer_->Arm(loop_->Now() + kSettle);
}

void StopSteps::LookAgain() { looked_(Look(request_)); }

void StopSteps::Do(const CommitStopStep& commit) {
  committed_ = commit.step;
  if (ProgressPages* pages = monitor_->pages(); pages != nullptr) pages->CommitStop(committed_);
}

StopStepLooked StopSteps::Look(const LookAtStopStep& request) const {
  StopStepLooked found{.generation = request.generation,
                       .round = request.round,
                       .look = {},
                       .all_stopped = committed_ > 0};
  const ProgressPages* pages = monitor_->pages();
  if (pages == nullptr) return found;
  // A prepared step stays prepared even if the service that asked for it has died. The next service
  // must not propose an earlier step, so `highest` is at least that.
  const uint64_t least = prepared_ > 0 ? prepared_ - 1 : 0;
  found.look = {.heeds = true, .below = true, .highest = least, .step_time = monitor_->step_time()};
  for (uint32_t i = 0; i < pages->count(); ++i) {
    if (!monitor_->runs(i)) continue;
    const StopAnswer answer = pages->Answer(i);
    // A worker at the prepared step counts as below it only if it answers that it waits there.
    // Without that answer it may have passed the step without reading it.
    const bool is_held = answer.step == prepared_ && answer.stands_at == answer.step;
    found.look.heeds = found.look.heeds && answer.heeds;
    found.look.highest = std::max(found.look.highest, answer.step);
    found.look.below = found.look.below && (answer.step < prepared_ || is_held);
    found.all_stopped = found.all_stopped && answer.stands_at >= committed_;
  }
  return found;
}

uint64_t StopSteps::StoppedAt() const {
  const ProgressPages* pages = monitor_->pages();
  if (pages == nullptr || committed_ == 0) return 0;
  uint64_t highest = 0;
  for (uint32_t i = 0; i < pages->count(); ++i) {
    highest = std::max(highest, pages->Answer(i).stands_at);
  }
  return highest >= committed_ ? highest : 0;
}

}  // namespace ddprun::launcher
