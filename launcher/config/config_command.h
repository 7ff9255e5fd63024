#ifndef DDPRUN_LAUNCHER_CONFIG_CONFIG_COMMAND_H_
#define DDPRUN_LAUNCHER_CONFIG_CONFIG_COMMAND_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/host.h"
#include "launcher/options/options_or_help.h"

namespace ddprun::launcher {

// `ddprun config`: writes a file for --config.
struct ConfigOptions {
  std::string path = "ddprun.yaml";  // "-" = standard output
  bool force = false;                // replace a file that is there
  bool secret = false;               // it holds a token: for the user's eyes only
  std::string text;                  // of the file; "" = to be asked for
};

// What the options say becomes the text of the file, after the same checks as for a run; only that
// GPUs need not be on this machine. The environment plays no part.
// Errors: usage and plan errors (errors.h).
absl::StatusOr<OptionsOrHelp<ConfigOptions>> ParseConfigOptions(
    const std::vector<std::string>& arguments, const Host& host);

// Shows a question to the user. Returns: the line that was typed; nullopt = there is no more.
using AskUser = std::function<std::optional<std::string>(const std::string& question)>;

// Asks for the usual options, each with a default that fits this machine, until every answer is
// good.
// Params: path — of the file, which its first line names.    Returns: the text of the file.
// Errors: plan — the user left.
absl::StatusOr<std::string> AskForConfig(const std::string& path, const AskUser& ask,
                                         const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CONFIG_COMMAND_H_
