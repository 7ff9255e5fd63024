#ifndef DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_
#define DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"

namespace ddprun::launcher {

// A parsed file.
//
// The nearest source wins: command line, then environment, then file, then default. A file's
// variables follow this rule too, unlike in accelerate, where the file wins. If the command line
// names a script, the file's args are dropped, because they belong to another script.
struct ConfigFile {
  std::vector<Setting> settings;
  std::vector<std::string> command;  // script and args; empty = none
  // Variables for the workers, unless the user's environment has the name.
  std::vector<std::pair<std::string, std::string>> worker_environment;
  std::vector<std::string> warnings;
  // Why a file of another launcher lacks the number of workers of a node, which that launcher
  // requires; an error unless the number is given elsewhere.
  absl::Status no_workers;
};

// Reads the file of --config: ours (docs/CONFIG.md), or accelerate's, which has a key
// compute_environment or distributed_type.
// Errors: plan — the file can't be read; usage — it can't be parsed. All name the file, and the
// line.
absl::StatusOr<ConfigFile> ReadConfigFile(const Argument& path, const Host& host);

// `ddprun config`: writes a file for --config.
struct ConfigOptions {
  std::string path = "ddprun.yaml";  // "-" = standard output
  bool force = false;                // replace an existing file
  bool secret = false;               // the file has a token: readable only by its owner
  std::string text;                  // of the file; "" = ask the user
};

// Makes the text of the file from the options, after the same checks as for a run, except that this
// machine needs no GPUs. The environment isn't used.
// Errors: usage and plan errors (argument.h).
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

// Runs `ddprun config`: asks on the terminal if no options are given, and writes the file
// atomically. Returns: the exit status. Threads: main.
int WriteConfig(ConfigOptions options, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_CONFIG_COMMAND_H_
