#include "launcher/options/setting.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"

namespace ddprun::launcher {
namespace {

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return UsageError(absl::StrCat(where, ": ", what));
}

}  // namespace

absl::StatusOr<std::string> ScalarText(absl::string_view where, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return Wrong(where, "must be one text or number");
  return node.text;
}

absl::StatusOr<std::string> SettingText(const Setting& setting, ValueShape shape) {
  const YamlNode& value = setting.value;
  const bool takes_list = shape == ValueShape::kList || shape == ValueShape::kTexts;
  const bool takes_map = shape == ValueShape::kAssignments || shape == ValueShape::kRanks;
  if (value.kind == YamlNode::Kind::kList ? !takes_list
                                          : value.kind == YamlNode::Kind::kMap && !takes_map) {
    return Wrong(setting.where, "must be one text or number");
  }
  if (value.kind == YamlNode::Kind::kScalar) return value.text;
  std::vector<std::string> parts;
  for (size_t i = 0; i < value.items.size(); ++i) {
    DDPRUN_ASSIGN_OR_RETURN(std::string item, ScalarText(setting.where, value.items[i]));
    if (shape == ValueShape::kTexts) {
      item = absl::StrReplaceAll(item, {{",", ",,"}});
    } else if (absl::StrContains(item, ',')) {
      return Wrong(setting.where, absl::StrCat(Quoted(item), " has a comma, which divides items"));
    }
    if (takes_map) {
      item = absl::StrCat(value.keys[i], shape == ValueShape::kRanks ? ":" : "=", item);
    }
    parts.push_back(std::move(item));
  }
  return absl::StrJoin(parts, ",");
}

}  // namespace ddprun::launcher
