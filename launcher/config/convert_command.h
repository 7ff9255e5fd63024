#ifndef DDPRUN_LAUNCHER_CONFIG_CONVERT_COMMAND_H_
#define DDPRUN_LAUNCHER_CONFIG_CONVERT_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/options/host.h"
#include "launcher/options/options_or_help.h"

namespace ddprun::launcher {

// `ddprun convert`: what another launcher was given, as ddprun takes it.
struct Conversion {
  std::string text;               // for standard output
  std::vector<std::string> told;  // what became of the rest, one line each, for the user
};

// Whether ddprun takes these words: options, script and arguments. Errors: usage and plan errors.
using CheckLaunch = std::function<absl::Status(const std::vector<std::string>& words)>;

// A file of accelerate config becomes a file for --config; a line with torchrun or python3 -m
// torch.distributed.run becomes one with ddprun; a batch script keeps its other lines. In a step of
// Slurm, options that Slurm answers (docs/SLURM.md) are left out. Nothing is dropped untold.
// Params: arguments: one that is a file's path, or a line, or a line's words.
// Errors: usage and plan errors (errors.h) — there is no such launcher in it, it can't be read, or
// `check` refuses an option.
absl::StatusOr<OptionsOrHelp<Conversion>> Convert(const std::vector<std::string>& arguments,
                                                  const Host& host, const CheckLaunch& check);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CONVERT_COMMAND_H_
