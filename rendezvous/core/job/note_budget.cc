#include "rendezvous/core/job/note_budget.h"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

std::optional<uint64_t> NoteBudget::Take(Instant now) {
  const int64_t more = (now - refilled_) / kEvery;
  left_ = static_cast<uint32_t>(std::min<int64_t>(kBurst, left_ + more));
  refilled_ = left_ == kBurst ? now : refilled_ + more * kEvery;
  if (left_ == 0) {
    ++left_out_;
    return std::nullopt;
  }
  --left_;
  return std::exchange(left_out_, 0);
}

std::string NoteBudget::BrokenInvariant(Instant now) const {
  if (left_ > kBurst) return "more notes than a burst";
  return refilled_ > now ? "notes of the future" : "";
}

}  // namespace ddprun::rendezvous
