#include "worker/torch/session/evaluations.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/zero_optimizer.h"

namespace ddprun::worker {
namespace {

// Puts a module into evaluation mode for as long as it lives. Then each part has its mode again,
// because a program may train with some of them in evaluation mode (frozen batch norm).
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    for (const auto& part : module.modules()) trained_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    for (const auto& [part, trains] : trained_) part->train(trains);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> trained_;  // parents first
};

}  // namespace

absl::Status Evaluations::Add(Evaluation evaluation) {
  if ((evaluation.figure == nullptr) == (evaluation.figures == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the evaluation '", evaluation.name, "' needs either `figure` or `figures`"));
  }
  for (const Evaluation& other : evaluations_) {
    if (other.name == evaluation.name) {
      return absl::InvalidArgumentError(absl::StrCat("EvaluateWith() got two evaluations '",
                                                     evaluation.name, "': give each its own name"));
    }
    if (other.better != BetterFigure::kNeither && evaluation.better != BetterFigure::kNeither) {
      return absl::InvalidArgumentError(
          absl::StrCat("both '", other.name, "' and '", evaluation.name,
                       "' say which model is better: leave `better` out of one"));
    }
  }
  evaluations_.push_back(std::move(evaluation));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<double>> Evaluations::Run(TrainedModel& trained, Metrics& metrics,
                                                       int64_t step) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Figures> all, Compute(trained));
  std::vector<std::string> texts;
  std::optional<double> score;
  for (size_t i = 0; i < all.size(); ++i) {
    const Evaluation& evaluation = evaluations_[i];
    for (const auto& [name, figure] : all[i]) {
      metrics.Scalar("evaluation/" + name, step, figure);
      if (evaluation.describe != nullptr) continue;
      texts.push_back(absl::StrFormat("%s %.4f", name, figure));
    }
    if (all[i].empty()) continue;
    const double first = all[i].front().second;
    if (evaluation.describe != nullptr) texts.push_back(evaluation.describe(first));
    if (evaluation.better == BetterFigure::kHigher) score = first;
    if (evaluation.better == BetterFigure::kLower) score = -first;
  }
  metrics.RestartClock();
  last_ = absl::StrJoin(texts, "  ");
  return score;
}

absl::StatusOr<std::vector<Evaluations::Figures>> Evaluations::Compute(
    TrainedModel& trained) const {
  const torch::NoGradGuard no_grad;
  std::optional<ExponentialMovingAverage::InPlace> averaged;
  if (trained.average() != nullptr) averaged.emplace(*trained.average());
  // Ranks may make different numbers of passes.
  std::optional<ZeroOptimizer::WholeParameters> whole;
  if (trained.zero() != nullptr) whole.emplace(*trained.zero());
  std::optional<EvaluationMode> mode(std::in_place, *trained.module());
  std::vector<Figures> all;
  for (const Evaluation& evaluation : evaluations_) {
    all.push_back(evaluation.figures != nullptr ? evaluation.figures()
                                                : Figures{{evaluation.name, evaluation.figure()}});
  }
  mode.reset();
  whole.reset();
  if (averaged.has_value()) DDPRUN_RETURN_IF_ERROR(averaged->PutBack());
  return all;
}

}  // namespace ddprun::worker
