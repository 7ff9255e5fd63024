// --config: our YAML, precedence, and the tree that it is read into (docs/CONFIG.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/yaml_document.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

FakeHost WithFile(const std::string& text) {
  FakeHost host;
  host.files["job.yaml"] = text;
  return host;
}

CommandLine ParseFile(const std::string& text, const std::string& line = "train.py",
                      const Variables& variables = {}) {
  return Parse(Words(absl::StrCat("--config job.yaml ", line)), variables, WithFile(text));
}

TEST(ConfigFile, GivesWhatNobodyElseGives) {
  const std::string text = "nnodes: 2:4\nrdzv_endpoint: host0\nmax-restarts: 3\nrole: file\n";
  const LaunchPlan plan = PlanOf(ParseFile(text));
  EXPECT_EQ(plan.job.nodes_min, 2U);
  EXPECT_EQ(plan.job.nodes_max, 4U);
  EXPECT_EQ(plan.job.max_restarts, 3U);
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.role, "file");
}

TEST(ConfigFile, CommandLineBeatsVariableBeatsFile) {
  const std::string text = "role: file\nmax_restarts: 1\n";
  EXPECT_EQ(PlanOf(ParseFile(text, "train.py", {{"PET_ROLE", "variable"}})).role, "variable");
  EXPECT_EQ(PlanOf(ParseFile(text, "--role line train.py", {{"PET_ROLE", "variable"}})).role,
            "line");
  EXPECT_EQ(PlanOf(ParseFile(text, "--role line train.py")).job.max_restarts, 1U);
}

TEST(ConfigFile, MayComeFromItsVariable) {
  const CommandLine parsed =
      Parse({"train.py"}, {{"PET_CONFIG", "job.yaml"}}, WithFile("role: file"));
  EXPECT_EQ(PlanOf(parsed).role, "file");
  EXPECT_EQ(PlanOf(Parse({"--config=", "train.py"}, {{"PET_CONFIG", "nowhere"}})).role, "default");
}

TEST(ConfigFile, HoldsTheScript) {
  const std::string text = "script: train.py\nargs: [--lr, 0.1, 'a b', \"\"]\n";
  EXPECT_THAT(PlanOf(ParseFile(text, "")).argv,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "--lr", "0.1", "a b", ""));
  // A script on the command line is another job: the file's arguments aren't for it.
  EXPECT_THAT(PlanOf(ParseFile(text, "app x")).argv,
              ElementsAre("/usr/bin/python3", "-u", "app", "x"));
}

TEST(ConfigFile, FlagsAndShapes) {
  const std::string text = R"(
virtual_local_rank: yes
standalone: off
nproc_per_node: 3
local_ranks_filter: [0, 2]
rdzv_conf: {join_timeout: 60, last_call_timeout: 5}
redirects: {0: 3, "1-2": 1}
duplicate_stdout_filters: ["a,b", c]
preempt_signals: [USR1, USR2]
log_dir:            # says nothing
)";
  const LaunchPlan plan = PlanOf(ParseFile(text));
  EXPECT_TRUE(plan.devices.virtual_local_rank);
  EXPECT_EQ(plan.rdzv_backend, "c10d");
  EXPECT_THAT(plan.output.local_ranks_filter, ElementsAre(0, 2));
  EXPECT_EQ(plan.job.join_timeout, absl::Seconds(60));
  EXPECT_EQ(plan.job.last_call_timeout, absl::Seconds(5));
  EXPECT_EQ(plan.output.stdout_sinks.size(), 3U);
  EXPECT_THAT(plan.output.stderr_sinks, ElementsAre(Pair(0, StreamSink::kFile)));
  EXPECT_THAT(plan.output.duplicate_stdout_filters, ElementsAre("a,b", "c"));
  EXPECT_EQ(plan.signals.policy.preempting.size(), 2U);
}

TEST(ConfigFile, JsonIsYaml) {
  EXPECT_EQ(PlanOf(ParseFile(R"({"nproc_per_node": 2, "script": "train.py"})", "")).worker_count,
            2U);
}

TEST(ConfigFile, EmptyOnesSayNothing) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n", "{}", "~"}) {
    EXPECT_EQ(PlanOf(ParseFile(text)).worker_count, 1U) << text;
  }
}

TEST(ConfigFile, MistakesNameFileLineAndKey) {
  const struct {
    const char* text;
    int status;
    const char* error;
  } kCases[] = {
      {"role: a\nnnode: 2\n", 2, "job.yaml:2: nnode is no option of ddprun; did you mean nnodes?"},
      {"completely_else: 2\n", 2, "completely_else is no option of ddprun; --help-all lists them"},
      {"\nnnodes: two\n", 1, "job.yaml:2: nnodes 'two': is not a number of nodes"},
      {"max_restarts: x\n", 2, "job.yaml:1: max_restarts 'x': is not a whole number"},
      {"start_method: bogus\n", 2, "job.yaml:1: start_method 'bogus': give spawn"},
      {"standalone: maybe\n", 2, "job.yaml:1: standalone 'maybe': give true or false"},
      {"nnodes: [1]\n", 2, "job.yaml:1: nnodes: must be one text or number"},
      {"nnodes: {a: 1}\n", 2, "job.yaml:1: nnodes: must be one text or number"},
      {"local_ranks_filter: {a: 1}\n", 2, "must be one text or number"},
      {"local_ranks_filter: ['0,1']\n", 2, "'0,1' has a comma"},
      {"rdzv_conf: {a: [1]}\n", 2, "job.yaml:1: rdzv_conf: must be one text or number"},
      {"nnodes: 1\nnnodes: 2\n", 2, "line 2: the key 'nnodes' is there twice"},
      {"max_restarts: 1\nmax-restarts: 2\n", 2, "job.yaml:2: max-restarts: is there twice"},
      {"config: other.yaml\n", 2, "job.yaml:1: config: belongs on the command line"},
      {"args: [a]\n", 2, "job.yaml:1: args: there is no script"},
      {"script: train.py\nargs: a b\n", 2, "job.yaml:2: args: must be a list"},
      {"script: [a]\n", 2, "job.yaml:1: script: must be one text"},
      {"- nnodes\n", 2, "job.yaml: must be lines of 'option: value'"},
      {"nnodes\n", 2, "job.yaml: must be lines of 'option: value'"},
      {"nnodes: [1\n", 2, "job.yaml: line "},
      {"\nnnodes: a: b\n", 2, "job.yaml: line 2: "},
      {"a: &x 1\n", 2, "anchors (&name) are not read"},
      {"a: *x\n", 2, "job.yaml: line 1"},
      {"a: 1\n---\nb: 2\n", 2, "more than one document"},
      {"? [a]\n: b\n", 2, "a list or mapping can't be a key"},
      {"a: \xff\n", 2, "is not UTF-8 text"},
      {"a: [[[[[[[[1]]]]]]]]\n", 2, "is nested deeper than 8"},
  };
  for (const auto& c : kCases) {
    const ExitNow exit = ExitOf(ParseFile(c.text));
    EXPECT_EQ(exit.status, c.status) << c.text << exit.text;
    EXPECT_THAT(exit.text, HasSubstr(c.error)) << c.text;
  }
}

TEST(ConfigFile, ThatCannotBeRead) {
  const ExitNow missing = ExitOf(Parse({"--config", "nowhere.yaml", "train.py"}));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.text, HasSubstr("--config: can't read 'nowhere.yaml': No such file"));
  const ExitNow large = ExitOf(ParseFile(std::string(65536, '#')));
  EXPECT_EQ(large.status, 1);
  EXPECT_THAT(large.text, HasSubstr("is larger than 64 KiB"));
}

TEST(ConfigFile, HasNoPlaceForVariablesOfNumaAndLogs) {
  // Options without a variable may still come from the file.
  EXPECT_THAT(ExitOf(ParseFile("numa_binding: node")).text,
              HasSubstr("job.yaml:1: numa_binding 'node': binds each worker"));
}

TEST(Yaml, TooManyValues) {
  std::string text = "a: [";
  for (size_t i = 0; i < kYamlNodesMax; ++i) text += "1,";
  const absl::StatusOr<YamlNode> read = ReadYaml(text + "]");
  EXPECT_THAT(read.status().message(), HasSubstr("there are more than 4096 values"));
}

TEST(Yaml, DeepNestingIsAnError) {
  EXPECT_FALSE(ReadYaml(std::string(50'000, '[')).ok());
  EXPECT_FALSE(ReadYaml(std::string(50'000, '{')).ok());
}

TEST(Yaml, KindsAndLines) {
  const YamlNode read = ReadYaml("a: 1\nb:\n  - 'no'\n  - no\nc: ~\n").value();
  ASSERT_EQ(read.kind, YamlNode::Kind::kMap);
  EXPECT_THAT(read.keys, ElementsAre("a", "b", "c"));
  EXPECT_EQ(read.Find("b")->line, 2);
  EXPECT_TRUE(read.Find("b")->items[0].quoted);
  EXPECT_FALSE(read.Find("b")->items[1].quoted);
  EXPECT_EQ(read.Find("c")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(read.Find("d"), nullptr);
}

TEST(Yaml, TextReadsBack) {
  for (const char* text : {"", "train.py", "2:4", "a b", "'", "\"\\", "#x", "- a", "~", "null",
                           "\n\t\x01", "größe", "{a}", "*x", "true", "-r", "a: b"}) {
    const absl::StatusOr<YamlNode> read = ReadYaml(absl::StrCat("k: ", YamlText(text)));
    ASSERT_TRUE(read.ok()) << text << read.status();
    ASSERT_EQ(read->items.at(0).kind, YamlNode::Kind::kScalar) << text;
    EXPECT_EQ(read->items.at(0).text, text);
  }
}

}  // namespace
}  // namespace ddprun::launcher
