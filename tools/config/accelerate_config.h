#ifndef DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_
#define DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/yaml_document.h"
#include "tools/config/config_command.h"

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

// A field of a section of accelerate's file, and the variable that `accelerate launch` makes of it.
struct AccelerateField {
  const char* key;
  const char* name;      // null = no variable is made of it
  const char* fallback;  // value without the field; null = the variable is not set then
  enum { kAsIs, kLower, kUpper } letters = kAsIs;
};

// Names and defaults of accelerate 1.15 (commands/launch.py, utils/launch.py).
absl::Span<const AccelerateField> FsdpFields();
absl::Span<const AccelerateField> DeepSpeedFields();
absl::Span<const AccelerateField> DynamoFields();
absl::Span<const AccelerateField> Fp8Fields();
absl::Span<const AccelerateField> MegatronFields();
// With sizes above one context or sequence parallelism has fields of its own.
absl::Span<const AccelerateField> ParallelismFields();
absl::Span<const AccelerateField> ContextParallelFields();
absl::Span<const AccelerateField> SequenceParallelFields();

// A section of the file. accelerate reads the fields of all sections into one list, in this order,
// in which the last one of a name counts.
struct AccelerateSection {
  const char* key;
  const char* prefix;  // that its fields get if they lack it
};
absl::Span<const AccelerateSection> AccelerateSections();

// Whether any section has such a field.
bool IsAccelerateField(absl::string_view key);

// Python's str() of a value as its yaml.safe_load() reads it: True, 1.0, ['a', 'b'], None.
std::string PythonText(const YamlNode& node);
// Python's bool() of it.
bool PythonTruth(const YamlNode& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CONFIG_ACCELERATE_CONFIG_H_
