#include "worker/torch/context/context_implementation.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {

GenerationEnd::GenerationEnd(AgentClient& agent, uint32_t local_rank, uint64_t generation,
                             std::shared_ptr<GroupAbort> abort)
    : abort_(std::move(abort)),
      watch_(agent.WatchGeneration(local_rank, generation, [this](absl::StatusOr<std::string> why) {
        OnEnd(std::move(why));
      })) {}

void GenerationEnd::OnEnd(absl::StatusOr<std::string> why) {
  const bool over = why.ok();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    why_ = std::move(why);
    changed_.notify_all();
  }
  // Otherwise nothing is known of the others; the collectives end by themselves.
  if (!over) return;
  abort_->Abort();
  over_.request_stop();
}

bool GenerationEnd::is_over() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_.has_value() && why_->ok();
}

absl::StatusOr<std::string> GenerationEnd::Await(absl::Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool heard = changed_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                                       [this] { return why_.has_value(); });
  if (heard) return *why_;
  return absl::DeadlineExceededError(absl::StrCat("the agent hasn't ended this generation within ",
                                                  absl::FormatDuration(patience)));
}

}  // namespace ddprun::worker
