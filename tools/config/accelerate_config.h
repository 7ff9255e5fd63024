#ifndef DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_
#define DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/yaml_document.h"
#include "tools/config/config_file.h"

namespace ddprun::launcher {

// Whether the document was written by `accelerate config` (default_config.yaml).
bool IsAccelerateConfig(const YamlNode& document);

// Translates the file into our options and into variables for the workers, with the names and
// defaults of accelerate 1.15 (commands/launch.py, utils/launch.py).
//
// For clouds, TPUs, MPI, Megatron-LM and DeepSpeed's own launchers `accelerate launch` starts
// processes in other ways; a file that asks for one of them is refused, with the field and advice.
// Params: file — its name, for messages.
// Errors: usage. Requires: a kMap.
absl::StatusOr<ConfigFile> ConvertAccelerateConfig(const std::string& file,
                                                   const YamlNode& document);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_
