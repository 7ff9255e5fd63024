#ifndef DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
#define DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"

namespace ddprun::launcher {

// Has workers in Python mark the steps of their optimizers by themselves (--mark auto), by a
// `sitecustomize` in front of PYTHONPATH that takes itself away again: marks.py.
// Threads: the loop's.
class StepMarks {
 public:
  // Makes its file in `folder`, which is made and is removed by whoever has the folder above.
  // Errors: of the files; the text names them.
  static absl::StatusOr<StepMarks> Create(std::string folder);

  // Completes the environment of a worker, "NAME=value" over what `inherited` has.
  void Prepare(const EnvironmentLookup& inherited, std::vector<std::string>* environment) const;

 private:
  explicit StepMarks(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
