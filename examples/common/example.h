#ifndef DDPRUN_EXAMPLES_COMMON_EXAMPLE_H_
#define DDPRUN_EXAMPLES_COMMON_EXAMPLE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ddprun/context.h"
#include "examples/common/option_table.h"
#include "examples/common/task.h"
#include "examples/common/training_options.h"

namespace ddprun::examples {

// One of the example programs: where it differs from the others.
struct Example {
  std::string introduction;  // what --help begins with
  std::string data_help;
  TrainingOptions options;  // the defaults
  // Adds options of its own; null = none.
  std::function<void(OptionTable* table)> add_options;
  // Reads the data and makes the model; torch's generator holds the seed.
  std::function<absl::StatusOr<std::unique_ptr<Task>>(const TrainingOptions&, Context&)> make_task;
};

// The example's main(): reads the options, meets the other workers, trains.
// Returns: the exit code: 0; 1 = an error; 2 = options that can't be understood. Errors are also in
// the error file (ddprun/run_worker.h).
int RunExample(int argc, char** argv, Example example);

}  // namespace ddprun::examples

#endif  // DDPRUN_EXAMPLES_COMMON_EXAMPLE_H_
