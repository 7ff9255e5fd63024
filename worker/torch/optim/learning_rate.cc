#include "ddprun/learning_rate.h"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace ddprun {
namespace {

constexpr double kPi = 3.14159265358979323846;

template <typename Value>
using Words = absl::Span<const std::pair<const char*, Value>>;

template <typename Value>
absl::StatusOr<Value> Choose(const char* what, const std::string& word, Words<Value> words) {
  for (const auto& [name, value] : words) {
    if (word == name) return value;
  }
  const std::string names = absl::StrJoin(
      words, ", ", [](std::string* out, const auto& entry) { out->append(entry.first); });
  return absl::InvalidArgumentError(absl::StrCat(what, " '", word, "' is none of ", names));
}

}  // namespace

absl::StatusOr<LearningRateScaling> ParseLearningRateScaling(const std::string& word) {
  static constexpr std::pair<const char*, LearningRateScaling> kWords[] = {
      {"none", LearningRateScaling::kNone},
      {"linear", LearningRateScaling::kLinear},
      {"sqrt", LearningRateScaling::kSquareRoot}};
  return Choose<LearningRateScaling>("learning rate scaling", word, kWords);
}

absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& word) {
  static constexpr std::pair<const char*, ScheduleKind> kWords[] = {
      {"constant", ScheduleKind::kConstant},
      {"linear", ScheduleKind::kLinear},
      {"cosine", ScheduleKind::kCosine},
      {"step", ScheduleKind::kStep}};
  return Choose<ScheduleKind>("schedule", word, kWords);
}

double ScaledLearningRate(double base, LearningRateScaling scaling, uint64_t base_batch,
                          uint64_t global_batch) {
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  switch (scaling) {
    case LearningRateScaling::kNone:
      return base;
    case LearningRateScaling::kLinear:
      return base * ratio;
    case LearningRateScaling::kSquareRoot:
      return base * std::sqrt(ratio);
  }
  return base;
}

double LearningRateSchedule::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  const int64_t after = step - warmup_steps;
  const auto span = static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double done = std::min(static_cast<double>(after) / span, 1.0);
  switch (kind) {
    case ScheduleKind::kConstant:
      return peak;
    case ScheduleKind::kLinear:
      return peak + (least - peak) * done;
    case ScheduleKind::kCosine:
      return least + (peak - least) * (1 + std::cos(kPi * done)) / 2;
    case ScheduleKind::kStep: {
      const int64_t drops = after / step_every;
      return peak * std::pow(step_factor, static_cast<double>(drops));
    }
  }
  return peak;
}

absl::Status LearningRateSchedule::Check() const {
  const bool ends = kind == ScheduleKind::kLinear || kind == ScheduleKind::kCosine;
  if (!(peak > 0) || !(least >= 0) || !(least <= peak)) {
    return absl::InvalidArgumentError(absl::StrCat("learning rates must be 0 <= least (", least,
                                                   ") <= peak (", peak, "), and the peak above 0"));
  }
  if (warmup_steps < 0 || (ends && (total_steps < 1 || warmup_steps > total_steps))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a warm-up of ", warmup_steps, " steps doesn't fit into ", total_steps, " steps"));
  }
  if (kind == ScheduleKind::kStep && (step_every < 1 || !(step_factor > 0))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the learning rate can't drop every ", step_every, " steps by the factor ", step_factor));
  }
  return absl::OkStatus();
}

void SetLearningRate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

GroupLearningRates::GroupLearningRates(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) peaks_.push_back(group.options().get_lr());
}

void GroupLearningRates::Set(torch::optim::Optimizer& optimizer,
                             const LearningRateSchedule& schedule, int64_t step) const {
  const size_t groups = std::min(peaks_.size(), optimizer.param_groups().size());
  for (size_t i = 0; i < groups; ++i) {
    LearningRateSchedule own = schedule;
    own.peak = peaks_[i];
    own.least = schedule.least * (peaks_[i] / schedule.peak);
    optimizer.param_groups()[i].options().set_lr(own.At(step));
  }
}

}  // namespace ddprun
