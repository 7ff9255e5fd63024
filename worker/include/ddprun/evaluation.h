#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

// Which of two figures is of the better model.
enum class BetterFigure { kNeither, kHigher, kLower };

// A figure over samples that are not trained on, after each epoch (or --evaluate_every so many
// steps) and at the end.
struct Evaluation {
  std::string name = {};  // "accuracy": in the metrics
  // Called by all ranks, on the model in evaluation mode, without gradients; with --ema_decay on
  // the averages of its parameters.
  std::function<double()> figure = {};
  // "accuracy 97.8% on 360 held-out digits"; null: name and figure.
  std::function<std::string(double figure)> describe = {};
  // The best model so far is saved after its evaluation, and stays beside the newest checkpoints.
  BetterFigure better = BetterFigure::kNeither;
  // In place of `figure`: several from one pass over the samples, each with its name. The first is
  // the one of `describe` and `better`.
  std::function<std::vector<std::pair<std::string, double>>()> figures = nullptr;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_
