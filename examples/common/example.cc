#include "examples/common/example.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/run_worker.h"
#include "examples/common/journal.h"
#include "examples/common/trainer.h"

namespace ddprun::examples {
namespace {

absl::Status Train(const Example& example) {
  const TrainingOptions& options = example.options;
  if (!options.log_level.empty()) SetLogLevel(options.log_level);
  at::set_num_threads(static_cast<int>(options.threads));
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = options.backend}));
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task, example.make_task(options, *context));
  Journal journal;
  if (!options.journal.empty() && context->is_main()) {
    DDPRUN_ASSIGN_OR_RETURN(journal, Journal::Open(options.journal));
  }
  // The weights are the same everywhere; what a model draws while it trains differs by rank.
  torch::manual_seed(static_cast<uint64_t>(options.seed) + context->rank());
  return Trainer(options, *context, *task, std::move(journal)).Run();
}

}  // namespace

int RunExample(int argc, char** argv, Example example) {
  OptionTable table(example.introduction);
  AddTrainingOptions(&example.options, example.data_help, &table);
  if (example.add_options != nullptr) {
    table.Group("Model");
    example.add_options(&table);
  }
  const absl::StatusOr<bool> help = table.Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (help.ok() && *help) {
    std::fputs(table.Help().c_str(), stdout);
    return 0;
  }
  absl::Status usage = help.status();
  usage.Update(CheckTrainingOptions(example.options));
  const int code = RunWorker(argc, argv, [&](int /*argc*/, char** /*argv*/) {
    return usage.ok() ? Train(example) : usage;
  });
  return usage.ok() ? code : 2;
}

}  // namespace ddprun::examples
