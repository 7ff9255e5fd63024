#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ddprun {

// Which of two figures means the better model.
enum class BetterFigure { kNeither, kHigher, kLower };

// Computes a figure over samples that are not trained on, after each epoch (or every
// --evaluate_every steps) and at the end.
struct Evaluation {
  std::string name = {};  // in the metrics: "accuracy"
  // Called by all ranks, on the model in evaluation mode, without gradients; with --ema_decay on
  // the averages of its parameters.
  std::function<double()> figure = {};
  // Returns a text for people, "accuracy 97.8% on 360 held-out digits"; null: name and figure.
  std::function<std::string(double figure)> describe = {};
  // The best model so far is saved after its evaluation, and stays beside the newest checkpoints.
  BetterFigure better = BetterFigure::kNeither;
  // In place of `figure`: several figures from one pass over the samples, each with its name.
  // `describe` and `better` are for the first one.
  std::function<std::vector<std::pair<std::string, double>>()> figures = nullptr;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_EVALUATION_H_
