#ifndef DDPRUN_LAUNCHER_OPTIONS_SETTING_H_
#define DDPRUN_LAUNCHER_OPTIONS_SETTING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/yaml_document.h"

// Values of options as files have them. Pure; threads: any.
namespace ddprun::launcher {

// How an option's value may be written in a file, besides as the text of the command line.
enum class ValueShape {
  kText,         // only as that text
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

// The text that an option takes. Errors: usage.
absl::StatusOr<std::string> SettingText(const Setting& setting, ValueShape shape);

// A node that must be one text or number. `where`: as in Setting. Errors: usage.
absl::StatusOr<std::string> ScalarText(absl::string_view where, const YamlNode& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_SETTING_H_
