#include <gtest/gtest.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/host.h"
#include "tests/fuzz/cli_check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/config/config_command.h"

namespace ddprun::launcher {

// Takes the bytes as the file of --config, and checks the tree that they become, what every command
// line keeps (cli_check.h), and that any text survives being written as YAML. Aborts if not.
CliOutcome ParseConfigBytes(absl::string_view bytes);

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

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240608;
constexpr int kRounds = 4'000;

const char* const kPieces[] = {"nnodes",      ": ",
                               "2",           "\n",
                               "role",        "[",
                               "]",           "{",
                               "}",           ", ",
                               "- ",          "  ",
                               "'",           "\"",
                               "#",           "---",
                               "&a ",         "*a",
                               "!!str ",      "? ",
                               "|\n",         ">\n",
                               "~",           "true",
                               "script",      "args",
                               "a b",         "\xc3\xa9",
                               "\xff",        "\\x41",
                               "rdzv_conf",   "distributed_type",
                               "NO",          "num_processes",
                               "fsdp_config", "FSDP",
                               "\t",          "%YAML 1.2\n",
                               "\r\n",        "\xef\xbb\xbf"};

const char* const kGood[] = {
    "nnodes: 2\nrole: a\nrdzv_conf: {join_timeout: 5}\n",
    "script: train.py\nargs: [a, 'b c']\nredirects: {0: 3}\n",
    "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n",
    "distributed_type: NO\nmixed_precision: bf16\ndynamo_config: {dynamo_backend: inductor}\n"};

TEST(ConfigSmoke, RandomPieces) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string text;
    for (uint64_t i = rng.Below(24); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    ParseConfigBytes(text);
  }
}

TEST(ConfigSmoke, DamagedFiles) {
  Rng rng(kSeed);
  std::array<int, 4> outcomes{};
  for (int round = 0; round < kRounds; ++round) {
    std::string text = kGood[rng.Below(std::size(kGood))];
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
    }
    ++outcomes[static_cast<size_t>(ParseConfigBytes(text))];
  }
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kPlan)], kRounds / 10);
  EXPECT_GT(outcomes[static_cast<size_t>(CliOutcome::kError)], kRounds / 10);
}

TEST(ConfigSmoke, Bytes) {
  EXPECT_EQ(ParseConfigBytes("nnodes: 2"), CliOutcome::kPlan);
  EXPECT_EQ(ParseConfigBytes("nnode: 2"), CliOutcome::kError);
  // The value has the words of another error, and a newline: the message must still be one line.
  EXPECT_EQ(ParseConfigBytes("nnodes: the script to run is missing\n"), CliOutcome::kError);
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ParseConfigBytes(bytes); }
