#include "tests/fuzz/config_fuzz.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/config/config_file.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {
namespace {

// A machine with one file.
class FileHost : public Host {
 public:
  explicit FileHost(const std::string& text) : text_(text) {}
  uint32_t CpuCount() const override { return 1; }
  uint32_t CudaCount() const override { return 0; }
  absl::StatusOr<CpuTopology> Topology() const override { return CpuTopology(); }
  absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>&) const override {
    return std::vector<GpuPlace>();
  }
  PathKind KindOf(const std::string&) const override { return PathKind::kMissing; }
  absl::Status CheckReadable(const std::string&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override { return name; }
  absl::StatusOr<std::string> ReadFile(const std::string&) const override { return text_; }
  std::string RandomId() const override { return "random"; }

 private:
  const std::string& text_;
};

// Returns the number of values.
size_t CheckTree(const YamlNode& node, size_t depth) {
  DDPRUN_CHECK(depth <= kYamlDepthMax + 1, "too deep");
  DDPRUN_CHECK(node.line >= 1, "a line before the first");
  const bool is_map = node.kind == YamlNode::Kind::kMap;
  DDPRUN_CHECK(node.keys.size() == (is_map ? node.items.size() : 0), "keys without values");
  size_t count = 1;
  for (const YamlNode& item : node.items) count += CheckTree(item, depth + 1);
  for (const std::string& key : node.keys) {
    DDPRUN_CHECK(node.Find(key) != nullptr, "a key that isn't found");
  }
  return count;
}

void CheckRoundTrip(const std::string& text) {
  if (!IsUtf8(text)) return;
  const absl::StatusOr<YamlNode> read = ReadYaml(absl::StrCat("k: ", YamlText(text)));
  DDPRUN_CHECK(read.ok(), "what is written can't be read");
  const YamlNode* value = read->Find("k");
  DDPRUN_CHECK(value != nullptr && value->text == text, "what is written reads differently");
}

}  // namespace

CliOutcome ParseConfigBytes(absl::string_view bytes) {
  const std::string text(bytes);
  if (const absl::StatusOr<YamlNode> tree = ReadYaml(text); tree.ok()) {
    DDPRUN_CHECK(CheckTree(*tree, 1) <= kYamlNodesMax + 1, "too many values");
  }
  CheckRoundTrip(text);
  // Most bytes are no file: the rest, which takes long, is for those that are.
  const FileHost host(text);
  if (const auto file = ReadConfigFile({.text = "f", .source = "--config"}, host); !file.ok()) {
    DDPRUN_CHECK(!file.status().message().empty(), "an error without a word");
    return CliOutcome::kError;
  }
  // The host of cli_fuzz.cc answers with the path when it is asked for a file.
  return ParseAnything({absl::StrCat("--config=", text), "train.py"}, {});
}

}  // namespace ddprun::launcher
