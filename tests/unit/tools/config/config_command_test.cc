// ddprun config: what it writes reads back as the same job, and what it asks for.
#include "tools/config/config_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

ConfigOptions OptionsOf(std::vector<std::string> words, const FakeHost& host = {}) {
  words.insert(words.begin(), "config");
  const CommandLine parsed = Parse(words, {}, host);
  const auto* options = std::get_if<ConfigOptions>(&parsed.command);
  if (options == nullptr) ADD_FAILURE() << ExitOf(parsed).text;
  return options == nullptr ? ConfigOptions() : *options;
}

TEST(Config, WritesWhatWasGiven) {
  const ConfigOptions options =
      OptionsOf({"--output", "job.yaml", "--nnodes=2:4", "--rdzv-endpoint", "host0", "--role",
                 "a: b", "-m", "pkg.mod", "--lr", "0.1", ""});
  EXPECT_EQ(options.path, "job.yaml");
  EXPECT_FALSE(options.force);
  EXPECT_THAT(options.text, HasSubstr("run it with: ddprun --config job.yaml\n"));
  EXPECT_THAT(options.text, EndsWith("nnodes: \"2:4\"\nrdzv_endpoint: host0\nmodule: true\n"
                                     "role: \"a: b\"\nscript: pkg.mod\nargs:\n  - \"--lr\"\n"
                                     "  - 0.1\n  - \"\"\n"));
}

TEST(Config, ReadsBackAsTheSameJob) {
  const std::vector<std::string> words = {"--nnodes=2:4",
                                          "--rdzv_endpoint=host0:5",
                                          "--rdzv_conf=join_timeout=60,lease=2",
                                          "--tee=0:3,*:1",
                                          "--standalone=false",
                                          "--duplicate_stdout_filters=a,,b,#c",
                                          "--role=größe '\"\\",
                                          "train.py",
                                          "-x",
                                          "a\tb"};
  FakeHost host;
  host.files["job.yaml"] = OptionsOf(words).text;
  const LaunchPlan from_file = PlanOf(Parse({"--config", "job.yaml"}, {}, host));
  const LaunchPlan from_line = PlanOf(Parse(words));
  EXPECT_EQ(from_file.argv, from_line.argv);
  EXPECT_EQ(from_file.role, from_line.role);
  EXPECT_EQ(from_file.job.fingerprint, from_line.job.fingerprint);
  EXPECT_EQ(from_file.job.join_timeout, absl::Seconds(60));
  EXPECT_EQ(from_file.job.lease, absl::Seconds(2));
  EXPECT_EQ(from_file.output.stdout_sinks, from_line.output.stdout_sinks);
  EXPECT_THAT(from_file.output.duplicate_stdout_filters, ElementsAre("a,b", "#c"));
}

TEST(Config, ChecksAsARunDoes) {
  const struct {
    std::vector<std::string> words;
    int status;
    const char* error;
  } kCases[] = {
      {{"config", "--nnodes=0"}, 1, "--nnodes '0': a job needs at least 1 node"},
      {{"config", "--max_restarts=x"}, 2, "--max_restarts 'x'"},
      {{"config", "--bogus"}, 2, "unknown option '--bogus'"},
      {{"config", "nosuch.py"}, 1, "can't read the script"},
      {{"config", "--output=", "train.py"}, 2, "--output ''"},
      {{"config", "--role=\xff"}, 1, "is not UTF-8 text"},
      {{"config", "train.py", "\xff"}, 1, "is not UTF-8 text"},
  };
  for (const auto& c : kCases) {
    const ExitNow exit = ExitOf(Parse(c.words));
    EXPECT_EQ(exit.status, c.status) << exit.text;
    EXPECT_THAT(exit.text, HasSubstr(c.error));
  }
}

TEST(Config, GpusMayBeElsewhere) {
  EXPECT_THAT(OptionsOf({"--nproc_per_node", "gpu:1,3"}).text,
              HasSubstr("nproc_per_node: \"gpu:1,3\"\n"));
  // Devices of a machine that isn't this one, which torch isn't asked about.
  EXPECT_THAT(OptionsOf({"--nproc_per_node", "xpu"}).text, HasSubstr("nproc_per_node: xpu\n"));
}

TEST(Config, TheEnvironmentPlaysNoPart) {
  const CommandLine parsed = Parse({"config", "--nnodes", "1"}, {{"PET_ROLE", "mine"}});
  EXPECT_THAT(std::get<ConfigOptions>(parsed.command).text, Not(HasSubstr("role")));
}

TEST(Config, NothingGivenIsAskedFor) {
  EXPECT_EQ(OptionsOf({}).text, "");
  EXPECT_EQ(OptionsOf({"--force", "--output=-"}).text, "");
  EXPECT_TRUE(OptionsOf({"--force", "--output=-"}).force);
}

TEST(Config, TokensAreForTheUserAlone) {
  EXPECT_TRUE(OptionsOf({"--token", "secret"}).secret);
  EXPECT_FALSE(OptionsOf({"--role", "a"}).secret);
}

// Answers in turn; then there is no more.
struct Answers {
  std::deque<std::string> lines;
  std::vector<std::string> questions;

  absl::StatusOr<std::string> Ask(const FakeHost& host = {}) {
    return AskForConfig(
        "job.yaml",
        [this](const std::string& question) -> std::optional<std::string> {
          questions.push_back(question);
          if (lines.empty()) return std::nullopt;
          std::string line = lines.front();
          lines.pop_front();
          return line;
        },
        host);
  }
};

TEST(Dialogue, DefaultsFitTheMachine) {
  Answers answers{.lines = {"", "", "", "", ""}, .questions = {}};
  EXPECT_THAT(answers.Ask().value(), EndsWith("nnodes: 1\nnproc_per_node: 1\nmax_restarts: 3\n"));
  FakeHost with_gpus;
  with_gpus.gpus = 4;
  Answers on_gpus{.lines = {"", "", "", "", ""}, .questions = {}};
  EXPECT_THAT(on_gpus.Ask(with_gpus).value(), HasSubstr("nproc_per_node: gpu\n"));
  EXPECT_THAT(on_gpus.questions[1], EndsWith("a number, gpu or cpu [gpu]: "));
}

TEST(Dialogue, SeveralMachinesMeetAtThisOne) {
  Answers answers{.lines = {"2", "", "", "", "", ""}, .questions = {}};
  EXPECT_THAT(answers.Ask().value(), HasSubstr("rdzv_endpoint: "));
  EXPECT_THAT(answers.questions[1], EndsWith(" [host0:29400]: "));
}

TEST(Dialogue, BadAnswersAreAskedAgain) {
  Answers answers{.lines = {"0", "2:4", "", "a/b", "host0", "--help", "2", "0", "logs", "nosuch.py",
                            "train.py --lr 0.1"},
                  .questions = {}};
  FakeHost nameless;
  nameless.hostname = "";
  const std::string text = answers.Ask(nameless).value();
  EXPECT_THAT(text, HasSubstr("nnodes: \"2:4\"\n"));
  EXPECT_THAT(text, EndsWith("script: train.py\nargs:\n  - \"--lr\"\n  - 0.1\n"));
  ASSERT_EQ(answers.questions.size(), 11U);
  EXPECT_THAT(answers.questions[1], HasSubstr("--nnodes '0': a job needs at least 1 node"));
  EXPECT_THAT(answers.questions[3], HasSubstr("needs a value"));
  EXPECT_THAT(answers.questions[4], HasSubstr("'a/b' is no host name"));
  EXPECT_THAT(answers.questions[10], HasSubstr("can't read the script"));
  // What was asked for is a job.
  FakeHost host;
  host.files["job.yaml"] = text;
  EXPECT_EQ(PlanOf(Parse({"--config", "job.yaml"}, {}, host)).worker_count, 2U);
}

TEST(Dialogue, MayBeLeft) {
  Answers answers{.lines = {"2"}, .questions = {}};
  EXPECT_THAT(answers.Ask().status().message(), HasSubstr("nothing was written"));
}

}  // namespace
}  // namespace ddprun::launcher
