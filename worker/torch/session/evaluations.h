#ifndef DDPRUN_WORKER_TORCH_SESSION_EVALUATIONS_H_
#define DDPRUN_WORKER_TORCH_SESSION_EVALUATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/evaluation.h"
#include "ddprun/metrics.h"
#include "worker/torch/session/trained_model.h"

namespace ddprun::worker {

// The evaluations of a Session, and which figure of them says which model is the best.
// Threads: one.
class Evaluations {
 public:
  // Errors: INVALID_ARGUMENT — without a figure, or beside the others.
  absl::Status Add(Evaluation evaluation);
  bool empty() const { return evaluations_.empty(); }

  // Computes all figures, with the averages in the parameters' place, if there are averages, and
  // reports them. Returns the score of the model, higher is better; nullopt: no evaluation judges.
  // Throws what the program's functions throw. A collective.
  absl::StatusOr<std::optional<double>> Run(TrainedModel& trained, Metrics& metrics, int64_t step);
  // The last one's text for people; "" = none.
  const std::string& last() const { return last_; }

 private:
  using Figures = std::vector<std::pair<std::string, double>>;
  absl::StatusOr<std::vector<Figures>> Compute(TrainedModel& trained) const;

  std::vector<Evaluation> evaluations_;
  std::string last_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_EVALUATIONS_H_
