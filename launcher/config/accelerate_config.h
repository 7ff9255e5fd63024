#ifndef DDPRUN_LAUNCHER_CONFIG_ACCELERATE_CONFIG_H_
#define DDPRUN_LAUNCHER_CONFIG_ACCELERATE_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/yaml_document.h"
#include "launcher/config/config_file.h"

namespace ddprun::launcher {

// True for what `accelerate config` writes (default_config.yaml).
bool IsAccelerateConfig(const YamlNode& document);

// What `accelerate launch` does with the file, as our options and as variables for the workers: the
// names and defaults are accelerate 1.15's (commands/launch.py, utils/launch.py).
//
// It starts processes for clouds, TPUs, MPI, Megatron-LM and DeepSpeed's own launchers in ways of
// its own; a file that asks for one is refused, with the field and what to do.
// Params: file — its name, for messages.
// Errors: usage. Requires: a kMap.
absl::StatusOr<ConfigFile> ConvertAccelerateConfig(const std::string& file,
                                                   const YamlNode& document);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_ACCELERATE_CONFIG_H_
