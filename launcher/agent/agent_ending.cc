#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/end_report.h"

namespace ddprun::launcher {
namespace {

// How long an agent that is ended by a signal waits for a console that isn't read.
constexpr absl::Duration kConsoleLimit = absl::Seconds(2);

}  // namespace

// Writes files before the console, because the console may block.
void Agent::Do(const Exit& effect) {
  exit_ = effect;
  WriteEndFiles(plan_, node_id_, *exit_);
  KeepEnd();
  Write("agent_exit", {{"status", exit_->status}});
  if (side_channels_ != nullptr) side_channels_->OnExit(!effect.verdict.has_value());
  workers_->set_on_drained([this] { ContinueEnd(); });
  LimitConsole();
  if (elected_ == nullptr) return ContinueEnd();
  elected_->End(/*job_over=*/exit_->verdict.has_value(), [this] {
    left_service_ = true;
    ContinueEnd();
  });
}

// An agent that had neither workers nor a verdict had no job: it was refused, or stopped while it
// waited for other nodes.
void Agent::KeepEnd() {
  if (plan_.preflight == Preflight::kTest) return;
  if (!exit_->verdict.has_value() && supervisor_->generation() == rendezvous::Generation()) return;
  EndedJob job = EndedJobOf(plan_, node_id_, *exit_, MonotonicNow() - began_, /*now=*/absl::Now());
  job.generation =
      std::max(job.generation, static_cast<int64_t>(supervisor_->generation().value()));
  if (KeepsLogs()) job.logs = log_folders_.folder();
  end_kept_ = KeepEndedJob(std::move(job), supervisor_->term().value());
}

// Waits until a slow console has accepted all output; if a signal asked for the end, for 2 s at
// most.
void Agent::LimitConsole() {
  if (exit_->signal == 0) return;
  console_limit_ = std::make_unique<Timer>(loop_.get(), [this] {
    gave_up_console_ = true;
    ContinueEnd();
  });
  console_limit_->Arm(loop_->Now() + kConsoleLimit);
}

// A signal that comes after the job's end stops the wait for the console. This needs a handler,
// because PID 1 of a container has no default action.
void Agent::OnSignal(int number) {
  if (!exit_.has_value()) return Feed(SignalReceived{number});
  if (!plan_.signals.policy.Ends(number)) return;
  if (!std::exchange(told_end_, true)) ReportEnd(plan_, *exit_);
  loop_->Stop();
}

void Agent::ContinueEnd() {
  if (elected_ != nullptr && !left_service_) return;
  // Leftovers may hold the workers' pipes open.
  if (left_count_ > 0) workers_->Drain();
  if (left_count_ == 0 && !gave_up_console_ && !workers_->Drained()) return;
  if (!std::exchange(told_end_, true)) ReportEnd(plan_, *exit_);
  if (left_count_ > 0) return AwaitLeftovers();
  if (gave_up_console_ || !console_->busy()) return loop_->Stop();
  console_->Forget(this);
  console_->Await(this, [this] { ContinueEnd(); });
}

}  // namespace ddprun::launcher
