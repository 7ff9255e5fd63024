#include "examples/digits/digits_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace ddprun::examples {
namespace {

// Where scripts/demo and scripts/test put the digits.
std::string DefaultData() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (!variable("DDPRUN_DIGITS").empty()) return variable("DDPRUN_DIGITS");
  std::string cache = variable("DDPRUN_CACHE");
  if (cache.empty() && !variable("XDG_CACHE_HOME").empty()) {
    cache = variable("XDG_CACHE_HOME") + "/ddprun";
  }
  if (cache.empty()) cache = variable("HOME") + "/.cache/ddprun";
  return cache + "/digits/digits.csv.gz";
}

}  // namespace

std::optional<int> ParseDigitsOptions(int argc, char** argv, DigitsOptions* options) {
  CLI::App app("Trains a small CNN on UCI's handwritten digits, on as many workers as there are.");
  app.option_defaults()->always_capture_default();
  options->data = DefaultData();
  app.add_option("--data", options->data, "digits.csv.gz; also DDPRUN_DIGITS");
  app.add_option("--epochs", options->epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch_size", options->batch_size, "of each worker")->check(CLI::PositiveNumber);
  app.add_option("--learning_rate", options->learning_rate)->check(CLI::PositiveNumber);
  app.add_option("--seed", options->seed);
  app.add_option("--threads", options->threads, "of LibTorch in each worker")
      ->check(CLI::PositiveNumber);
  app.add_option("--checkpoint_dir", options->checkpoint_dir,
                 "resumes from the newest checkpoint there");
  app.add_option("--checkpoint_every", options->checkpoint_every, "steps")
      ->check(CLI::PositiveNumber);
  app.add_option("--backend", options->backend)
      ->check(CLI::IsMember({"auto", "shm", "hierarchical", "gloo", "nccl"}));
  app.add_option("--journal", options->journal, "rank 0 appends a JSON line for each step");
  app.add_option("--step_delay_ms", options->step_delay_ms, "to watch it")
      ->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace ddprun::examples
