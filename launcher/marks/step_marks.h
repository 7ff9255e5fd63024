#ifndef DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
#define DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"

namespace ddprun::launcher {

// launcher/marks/marks.py and witness.py.
extern const char kMarksSource[];
extern const char kWitnessSource[];

// Reaches into Python workers: a `sitecustomize` at the front of PYTHONPATH, marks.py, registers
// hooks in torch and removes itself from the path.
// Threads: the loop's.
class StepMarks {
 public:
  struct Settings {
    bool count_steps = true;  // the steps of optimizers (--mark auto)
    // ddprun.elastic.automatic takes over the script's process group (--in_process_restart)
    bool in_process_restart = false;
  };

  // Makes its file in `folder`, which is created; the owner of the folder above removes it.
  // Errors: those of the files; the text names them.
  static absl::StatusOr<StepMarks> Create(std::string folder, Settings settings);

  // Adds variables to the environment of a worker, "NAME=value" over `inherited`.
  void Prepare(const EnvironmentLookup& inherited, std::vector<std::string>* environment) const;

 private:
  StepMarks(std::string folder, Settings settings)
      : folder_(std::move(folder)), settings_(settings) {}

  std::string folder_;
  Settings settings_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MARKS_STEP_MARKS_H_
