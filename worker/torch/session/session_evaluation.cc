// Evaluations of a session, and the best checkpoint.
#include <ATen/core/grad_mode.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {

absl::Status Session::Implementation::AddEvaluation(Evaluation evaluation) {
  if ((evaluation.figure == nullptr) == (evaluation.figures == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the evaluation '", evaluation.name, "' needs either `figure` or `figures`"));
  }
  for (const Evaluation& other : evaluations) {
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
  evaluations.push_back(std::move(evaluation));
  return absl::OkStatus();
}

void Session::Implementation::NoteEvaluated() {
  if (!own.empty()) loop_marks.evaluated_step = progress.step;
}

absl::StatusOr<std::string> Session::Implementation::Evaluate() {
  if (evaluations.empty()) {
    NoteEvaluated();
    return "";
  }
  context->Mark(ProgressPhase::kEvaluation, progress.step);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Figures> all, ComputeFigures());
  std::vector<std::string> texts;
  std::optional<double> score;
  for (size_t i = 0; i < all.size(); ++i) {
    const Evaluation& evaluation = evaluations[i];
    for (const auto& [name, figure] : all[i]) {
      metrics->Scalar("evaluation/" + name, progress.step, figure);
      if (evaluation.describe != nullptr) continue;
      texts.push_back(absl::StrFormat("%s %.4f", name, figure));
    }
    if (all[i].empty()) continue;
    const double first = all[i].front().second;
    if (evaluation.describe != nullptr) texts.push_back(evaluation.describe(first));
    if (evaluation.better == BetterFigure::kHigher) score = first;
    if (evaluation.better == BetterFigure::kLower) score = -first;
  }
  metrics->RestartClock();
  // Set before the save below, because the evaluation has changed the program's states.
  NoteEvaluated();
  if (score.has_value()) DDPRUN_RETURN_IF_ERROR(SaveIfBest(*score));
  last_evaluation = absl::StrJoin(texts, "  ");
  return last_evaluation;
}

absl::StatusOr<std::vector<Session::Implementation::Figures>>
Session::Implementation::ComputeFigures() {
  const torch::NoGradGuard no_grad;
  std::optional<ExponentialMovingAverage::InPlace> averaged;
  if (average != nullptr) averaged.emplace(*average);
  // Ranks may make different numbers of passes.
  std::optional<ZeroOptimizer::WholeParameters> whole;
  if (zero != nullptr) whole.emplace(*zero);
  model->eval();
  SeedGenerators(/*of_evaluation=*/true);
  std::vector<Figures> all;
  for (const Evaluation& evaluation : evaluations) {
    all.push_back(evaluation.figures != nullptr ? evaluation.figures()
                                                : Figures{{evaluation.name, evaluation.figure()}});
  }
  model->train();
  whole.reset();
  if (averaged.has_value()) DDPRUN_RETURN_IF_ERROR(averaged->PutBack());
  return all;
}

absl::Status Session::Implementation::SaveIfBest(double score) {
  if (checkpointer == nullptr) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const bool is_best, checkpointer->IsBest(score));
  return is_best ? Save(score) : absl::OkStatus();
}

}  // namespace ddprun
