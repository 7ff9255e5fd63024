#ifndef DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
#define DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"

namespace ddprun::launcher {

// Counts the optimizer steps of Python workers (--mark auto): a `sitecustomize` at the front of
// PYTHONPATH, marks.py, registers a hook in torch and removes itself from the path.
// Threads: the loop's.
class StepMarks {
 public:
  // Makes its file in `folder`, which is created; the owner of the folder above removes it.
  // Errors: those of the files; the text names them.
  static absl::StatusOr<StepMarks> Create(std::string folder);

  // Adds variables to the environment of a worker, "NAME=value" over `inherited`.
  void Prepare(const EnvironmentLookup& inherited, std::vector<std::string>* environment) const;

 private:
  explicit StepMarks(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
