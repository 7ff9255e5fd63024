#ifndef DDPRUN_LAUNCHER_CONFIG_CONFIG_FILE_H_
#define DDPRUN_LAUNCHER_CONFIG_CONFIG_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/setting.h"

namespace ddprun::launcher {

// What a file says.
//
// The nearest source wins: command line, then environment, then file, then default. A file's
// variables follow this rule too, unlike in accelerate: there the file wins. A script
// on the command line drops the file's args, which are another script's.
struct ConfigFile {
  std::vector<Setting> settings;
  std::vector<std::string> command;  // script and args; empty = none
  // Variables for the workers, where the user's environment has none of that name.
  std::vector<std::pair<std::string, std::string>> worker_environment;
  std::vector<std::string> warnings;
  // Why it doesn't say how many workers a node has although it is of a launcher that asks for that;
  // an error unless they are given elsewhere.
  absl::Status no_workers;
};

// Reads the file of --config: ours (docs/CONFIG.md), or accelerate's, which has a key
// compute_environment or distributed_type.
// Errors: plan — it can't be read; usage — it can't be understood. All name the file, and the line.
absl::StatusOr<ConfigFile> ReadConfigFile(const Argument& path, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CONFIG_FILE_H_
