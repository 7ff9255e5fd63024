#include "rendezvous/core/generation/generation_record.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

void RestartCost::Begin(Instant formed) {
  *this = RestartCost();
  formed_ = formed;
}

void RestartCost::SawStep(Instant now) {
  if (!trained_) trained_ = now;
}

void RestartCost::SawTime(Instant now, uint32_t group_rank, const NodeTime& time) {
  const absl::Duration spent = time.spent[TimeCause::kCheckpoint];
  absl::Duration& known = checkpoints_[group_rank];
  if (spent <= known) return;
  known = spent;
  saved_ = now;
}

// Example: formed at 0 s, first step at 4 s, a checkpoint over at 60 s, silence from 75 s on: a
// restart costs the start, 4 s, and the 15 s of training since the checkpoint.
absl::Duration RestartCost::Estimate(Instant until) const {
  const Instant trained = trained_.value_or(formed_);
  const Instant from = saved_.value_or(trained);
  return trained - formed_ + std::max(until - from, absl::ZeroDuration());
}

std::string RestartCost::BrokenInvariant(Instant now) const {
  if (formed_ > now) return "a generation that begins in the future";
  if (trained_ && (*trained_ < formed_ || *trained_ > now)) return "a step outside its generation";
  if (saved_ && (*saved_ < formed_ || *saved_ > now)) return "a checkpoint outside its generation";
  return "";
}

void GenerationRecord::Begin(GenerationView generation) {
  const bool follows =
      generations_.empty() || generation.generation == generations_.back().generation.Next();
  DDPRUN_CHECK(follows, "a generation is left out");
  if (generations_.size() == kGenerationsRecordedMax) generations_.pop_front();
  generations_.push_back(std::move(generation));
  warm_.clear();
}

void GenerationRecord::End(Instant now, const std::string& reason) {
  if (generations_.empty() || !generations_.back().ended.is_infinite()) return;
  generations_.back().ended = now;
  generations_.back().end_reason = reason;
}

void GenerationRecord::Explain(const std::string& why) {
  if (generations_.empty() || generations_.back().ended.is_infinite()) return;
  generations_.back().end_reason = why;
}

void GenerationRecord::SawStep(uint64_t step) {
  if (generations_.empty()) return;
  begun_step_ = std::max(begun_step_, step);
  GenerationView& live = generations_.back();
  live.first_step = std::min(live.first_step.value_or(step), step);
  live.last_step = std::max(live.last_step.value_or(step), step);
}

void GenerationRecord::SawWarm(uint32_t group_rank, const WarmUse& use) {
  if (generations_.empty() || !generations_.back().ended.is_infinite()) return;
  if (use.warm_workers + use.cold_workers == 0) return;
  std::optional<WarmStart>& sum = generations_.back().warm;
  if (warm_.empty()) sum = WarmStart();  // after a recovery all nodes report again
  const WarmStart told{use.warm_workers, use.cold_workers, use.saved};
  const WarmStart before = std::exchange(warm_[group_rank], told);
  sum->warm_workers += told.warm_workers - before.warm_workers;
  sum->cold_workers += told.cold_workers - before.cold_workers;
  sum->saved = std::max(sum->saved, told.saved);
  if (told.saved >= before.saved || before.saved < sum->saved) return;
  sum->saved = absl::ZeroDuration();
  for (const auto& [rank, each] : warm_) sum->saved = std::max(sum->saved, each.saved);
}

void GenerationRecord::StoppedAt(uint64_t step) {
  DDPRUN_CHECK(step > 0, "steps to stop at begin with 1");
  if (begun_step_ == step) --begun_step_;
}

std::vector<GenerationSummary> GenerationRecord::ToRecord(Instant now) const {
  std::vector<GenerationSummary> summaries;
  for (const GenerationView& each : generations_) {
    const bool lives = each.ended.is_infinite();
    summaries.push_back({.generation = each.generation,
                         .world_size = each.world_size,
                         .nodes = each.nodes,
                         .reason = each.reason,
                         .rule = each.rule,
                         .age = now - each.began,
                         .ended = lives ? std::nullopt : std::optional(now - each.ended),
                         .end_reason = each.end_reason,
                         .first_step = each.first_step,
                         .last_step = each.last_step,
                         .warm = each.warm});
  }
  return summaries;
}

void GenerationRecord::Recover(Instant now, const std::vector<GenerationSummary>& generations,
                               uint64_t begun_step) {
  DDPRUN_CHECK(generations_.empty(), "generations were forgotten");
  begun_step_ = begun_step;
  for (const GenerationSummary& each : generations) {
    generations_.push_back({.generation = each.generation,
                            .world_size = each.world_size,
                            .nodes = each.nodes,
                            .reason = each.reason,
                            .rule = each.rule,
                            .began = now - each.age,
                            .ended = each.ended ? now - *each.ended : Instant::Infinite(),
                            .end_reason = each.end_reason,
                            .first_step = each.first_step,
                            .last_step = each.last_step,
                            .warm = each.warm});
  }
}

std::string GenerationRecord::BrokenInvariant() const {
  for (size_t i = 0; i < generations_.size(); ++i) {
    const GenerationView& each = generations_[i];
    const bool last = i + 1 == generations_.size();
    if (each.first_step.has_value() != each.last_step.has_value()) return "half a range of steps";
    if (each.first_step && *each.first_step > *each.last_step) return "steps that go back";
    if (each.warm && each.warm->warm_workers + each.warm->cold_workers == 0) {
      return "a warm start of nobody";
    }
    if (last) break;
    if (each.ended.is_infinite()) return "a generation that goes on beside the next one";
    if (generations_[i + 1].generation != each.generation.Next()) return "a generation is left out";
  }
  return generations_.size() > kGenerationsRecordedMax ? "more generations than are recorded" : "";
}

}  // namespace ddprun::rendezvous
