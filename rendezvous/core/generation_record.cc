#include "rendezvous/core/generation_record.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

void GenerationRecord::Begin(GenerationView generation) {
  if (generations_.size() == kGenerationsRecordedMax) generations_.pop_front();
  generations_.push_back(std::move(generation));
}

void GenerationRecord::End(Instant now, const std::string& reason) {
  if (generations_.empty() || !generations_.back().ended.is_infinite()) return;
  generations_.back().ended = now;
  generations_.back().end_reason = reason;
}

void GenerationRecord::SawStep(uint64_t step) {
  if (generations_.empty()) return;
  GenerationView& live = generations_.back();
  live.first_step = std::min(live.first_step.value_or(step), step);
  live.last_step = std::max(live.last_step.value_or(step), step);
}

}  // namespace ddprun::rendezvous
