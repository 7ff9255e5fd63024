#ifndef DDPRUN_LAUNCHER_CLI_CONFIG_FILE_H_
#define DDPRUN_LAUNCHER_CLI_CONFIG_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/yaml_document.h"
#include "launcher/cli/argument.h"
#include "launcher/cli/host.h"

namespace ddprun::launcher {

// How a value of an option may be written in a file, besides as the text that the option takes.
enum class ValueShape {
  kText,         // in no other way
  kList,         // [a, b] for "a,b"
  kTexts,        // the same, where a comma within an item becomes ",,"
  kAssignments,  // {a: 1, b: 2} for "a=1,b=2"
  kRanks,        // {0: 3, 4-7: 1} for "0:3,4-7:1"
};

// One value of a file.
struct Setting {
  std::string name;   // of the option, with dashes or underscores
  std::string where;  // for messages: "job.yaml:3: nnodes"
  YamlNode value;     // not kNull
};

// What a file says.
struct ConfigFile {
  std::vector<Setting> settings;
  std::vector<std::string> command;  // script and args; empty = none
  // Variables for the workers, where the user's environment has none of that name.
  std::vector<std::pair<std::string, std::string>> worker_environment;
  std::vector<std::string> warnings;
};

// Reads the file of --config: ours (docs/CONFIG.md), or accelerate's, which has a key
// compute_environment or distributed_type.
// Errors: plan — it can't be read; usage — it can't be understood. All name the file, and the line.
absl::StatusOr<ConfigFile> ReadConfigFile(const Argument& path, const Host& host);

// The text that an option takes. Errors: usage.
absl::StatusOr<std::string> SettingText(const Setting& setting, ValueShape shape);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_CONFIG_FILE_H_
