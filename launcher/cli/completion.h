#ifndef DDPRUN_LAUNCHER_CLI_COMPLETION_H_
#define DDPRUN_LAUNCHER_CLI_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// The output of --print-completion: the completion script that was installed with this program
// (cmake/manual.py writes it).
// Params: shell: bash or zsh.
// Errors: a usage error for another word; a plan error if the script isn't beside the program.
absl::StatusOr<std::string> CompletionScript(const Argument& shell, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_COMPLETION_H_
