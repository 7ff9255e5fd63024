#ifndef DDPRUN_TOOLS_CONFIG_CONFIG_FILE_H_
#define DDPRUN_TOOLS_CONFIG_CONFIG_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/setting.h"

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_CONFIG_FILE_H_
