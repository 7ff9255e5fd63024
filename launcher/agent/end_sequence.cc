#include "launcher/agent/end_sequence.h"

#include <utility>

#include "absl/time/time.h"
#include "launcher/agent/end_report.h"

namespace ddprun::launcher {
namespace {

// How long an agent that is ended by a signal waits for a console that isn't read.
constexpr absl::Duration kConsoleLimit = absl::Seconds(2);

}  // namespace

void EndSequence::Begin(const Exit& exit) {
  exit_ = exit;
  parts_.workers->set_on_drained([this] { Continue(); });
  LimitConsole();
  parts_.service->End(/*job_over=*/exit.verdict.has_value(), [this] {
    left_service_ = true;
    Continue();
  });
}

// Waits until a slow console has accepted all output; if a signal asked for the end, for 2 s at
// most.
void EndSequence::LimitConsole() {
  if (exit_->signal == 0) return;
  console_limit_ = std::make_unique<Timer>(parts_.loop, [this] {
    gave_up_console_ = true;
    Continue();
  });
  console_limit_->Arm(parts_.loop->Now() + kConsoleLimit);
}

void EndSequence::ReportOnce() {
  if (!std::exchange(reported_, true)) ReportEnd(*parts_.plan, *exit_);
}

void EndSequence::Cut() {
  ReportOnce();
  parts_.loop->Stop();
}

void EndSequence::Continue() {
  if (!left_service_) return;
  const bool leftovers = parts_.leftovers->count() > 0;
  // Leftovers may hold the workers' pipes open.
  if (leftovers) parts_.workers->Drain();
  if (!leftovers && !gave_up_console_ && !parts_.workers->Drained()) return;
  ReportOnce();
  if (leftovers && parts_.leftovers->AwaitEnd()) return;
  if (leftovers || gave_up_console_ || !parts_.console->busy()) return parts_.loop->Stop();
  parts_.console->Forget(this);
  parts_.console->Await(this, [this] { Continue(); });
}

}  // namespace ddprun::launcher
