#include "tools/config/config_file.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/errors.h"
#include "tools/config/accelerate_config.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kFileBytesMax = 65536;  // less than Host::ReadFile() gives
constexpr size_t kPathBytesShown = 80;

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return UsageError(absl::StrCat(where, ": ", what));
}

absl::StatusOr<std::vector<std::string>> ReadCommand(const std::string& file,
                                                     const YamlNode* script, const YamlNode* args) {
  std::vector<std::string> command;
  if (script != nullptr && script->kind != YamlNode::Kind::kNull) {
    DDPRUN_ASSIGN_OR_RETURN(command.emplace_back(),
                            ScalarText(absl::StrCat(file, ":", script->line, ": script"), *script));
  }
  if (args == nullptr || args->kind == YamlNode::Kind::kNull) return command;
  const std::string where = absl::StrCat(file, ":", args->line, ": args");
  if (command.empty()) return Wrong(where, "there is no script that they belong to");
  if (args->kind != YamlNode::Kind::kList) {
    return Wrong(where, "must be a list, as in [--lr, 0.1]");
  }
  for (const YamlNode& item : args->items) {
    DDPRUN_ASSIGN_OR_RETURN(command.emplace_back(), ScalarText(where, item));
  }
  return command;
}

absl::StatusOr<ConfigFile> ReadOurs(const std::string& file, const YamlNode& document) {
  ConfigFile config;
  for (size_t i = 0; i < document.items.size(); ++i) {
    const std::string& key = document.keys[i];
    const YamlNode& value = document.items[i];
    const std::string where =
        absl::StrCat(file, ":", value.line, ": ", Shown(key, kPathBytesShown));
    if (key == "script" || key == "args") continue;
    if (key == "config" || key == "version" || key == "help") {
      return Wrong(where, "belongs on the command line");
    }
    if (value.kind == YamlNode::Kind::kNull) continue;  // "nnodes:" says nothing
    config.settings.push_back({.name = key, .where = where, .value = value});
  }
  DDPRUN_ASSIGN_OR_RETURN(config.command,
                          ReadCommand(file, document.Find("script"), document.Find("args")));
  return config;
}

}  // namespace

absl::StatusOr<ConfigFile> ReadConfigFile(const Argument& path, const Host& host) {
  const std::string file = Shown(path.text, kPathBytesShown);
  const absl::StatusOr<std::string> text = host.ReadFile(path.text);
  if (!text.ok()) {
    return PlanError(absl::StrCat(path.source, ": can't read ", text.status().message()));
  }
  if (text->size() >= kFileBytesMax) {
    return PlanError(absl::StrCat(path.source, " ", Quoted(path.text), ": is larger than 64 KiB"));
  }
  absl::StatusOr<YamlNode> document = ReadYaml(*text);
  if (!document.ok()) return Wrong(file, document.status().message());
  if (document->kind == YamlNode::Kind::kNull) return ConfigFile();
  if (document->kind != YamlNode::Kind::kMap) {
    return Wrong(file, "must be lines of 'option: value', as ddprun config writes them");
  }
  if (IsAccelerateConfig(*document)) return ConvertAccelerateConfig(file, *document);
  return ReadOurs(file, *document);
}

}  // namespace ddprun::launcher
