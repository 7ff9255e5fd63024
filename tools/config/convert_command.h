#ifndef DDPRUN_TOOLS_CONFIG_CONVERT_COMMAND_H_
#define DDPRUN_TOOLS_CONFIG_CONVERT_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// `ddprun convert`: another launcher's options or files, translated for ddprun.
struct Conversion {
  std::string text;               // for standard output
  std::vector<std::string> told;  // lines for the user about what was left out or changed
};

// Checks a command line of ddprun: options, script and arguments. Errors: usage and plan errors.
using CheckLaunch = std::function<absl::Status(const std::vector<std::string>& words)>;

// A file of accelerate config becomes a file for --config; a line with torchrun or python3 -m
// torch.distributed.run becomes one with ddprun; a batch script keeps its other lines. In a step of
// Slurm, options that Slurm answers (docs/SLURM.md) are left out. Each of them is reported
// to the user. Params: arguments: the path of a file, or a line, or the words of a line.
// Errors: usage and plan errors (argument.h) — no such launcher, an unreadable file, or `check`
// refuses an option.
absl::StatusOr<OptionsOrHelp<Conversion>> Convert(const std::vector<std::string>& arguments,
                                                  const Host& host, const CheckLaunch& check);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_CONVERT_COMMAND_H_
