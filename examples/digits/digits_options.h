#ifndef DDPRUN_EXAMPLES_DIGITS_DIGITS_OPTIONS_H_
#define DDPRUN_EXAMPLES_DIGITS_DIGITS_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::examples {

struct DigitsOptions {
  std::string data;  // path; default: DDPRUN_DIGITS, else where the scripts put it
  int64_t epochs = 16;
  int64_t batch_size = 32;  // of each worker
  double learning_rate = 4e-3;
  uint64_t seed = 1;
  int threads = 1;                // LibTorch's, of each worker
  std::string checkpoint_dir;     // "" = none
  int64_t checkpoint_every = 20;  // steps
  std::string backend = "auto";
  std::string journal;        // "" = none
  int64_t step_delay_ms = 0;  // slows training down, to watch it
};

// Reads the command line. Returns the exit code when there is nothing to run: --help, or an error,
// which it has printed.
std::optional<int> ParseDigitsOptions(int argc, char** argv, DigitsOptions* options);

}  // namespace ddprun::examples

#endif  // DDPRUN_EXAMPLES_DIGITS_DIGITS_OPTIONS_H_
