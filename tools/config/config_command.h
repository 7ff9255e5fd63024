#ifndef DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_
#define DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_

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
  bool force = false;                // replace an existing file
  bool secret = false;               // the file has a token: readable only by its owner
  std::string text;                  // of the file; "" = ask the user
};

// Makes the text of the file from the options, after the same checks as for a run, except that this
// machine needs no GPUs. The environment isn't used.
// Errors: usage and plan errors (errors.h).
absl::StatusOr<OptionsOrHelp<ConfigOptions>> ParseConfigOptions(
    const std::vector<std::string>& arguments, const Host& host);

// Shows a question to the user. Returns: the line that was typed; nullopt = end of file.
using AskUser = std::function<std::optional<std::string>(const std::string& question)>;

// Asks for the usual options, each with a default that fits this machine, until every answer is
// good.
// Params: path — of the file, which its first line names.    Returns: the text of the file.
// Errors: plan — the user left.
absl::StatusOr<std::string> AskForConfig(const std::string& path, const AskUser& ask,
                                         const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_
