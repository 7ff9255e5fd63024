// How words become options, as torchrun reads them: checks 1-3, 14-17, 24-27 of tests/contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> WorkerWords(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = PlanOf(Parse(arguments)).argv;
  argv.erase(argv.begin(), argv.begin() + std::min<ptrdiff_t>(2, std::ssize(argv)));
  return argv;
}

TEST(Grammar, MissingScriptIsUsageError) {  // 1
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"--nnodes", "1"}, {"--"}, {""}}) {
    const ExitNow exit = ExitOf(Parse(arguments));
    EXPECT_EQ(exit.status, 2);
    EXPECT_TRUE(exit.to_stderr);
    EXPECT_THAT(exit.text, HasSubstr("ddprun: error: the script to run is missing; usage: ddprun"));
  }
}

TEST(Grammar, UnknownOptionIsUsageError) {  // 3
  for (const char* word : {"--bogus", "-x", "-1", "--=3", "--bogus=3"}) {
    const ExitNow exit = ExitOf(Parse({word, "train.py"}));
    EXPECT_EQ(exit.status, 2) << word;
    EXPECT_THAT(exit.text, HasSubstr("unrecognized arguments: unknown option")) << word;
  }
}

TEST(Grammar, UnknownOptionSuggestsTheNearest) {
  EXPECT_THAT(ExitOf(Parse({"--nproc_per_nodes", "2"})).text,
              HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_THAT(ExitOf(Parse({"-nnodes", "2"})).text, HasSubstr("did you mean --nnodes?"));
  EXPECT_THAT(ExitOf(Parse({"--completely-else"})).text, testing::Not(HasSubstr("did you mean")));
}

TEST(Grammar, MistypedVariablesAreNamed) {
  FakeHost host;
  host.variables = {"PET_NPROC_PER_NOD", "PET_NNODES", "PET_OF_ANOTHER_TOOL", "HOME"};
  EXPECT_THAT(Parse({"train.py"}, {}, host).warnings,
              ElementsAre("'PET_NPROC_PER_NOD' is set, which no option reads; did you mean "
                          "PET_NPROC_PER_NODE?"));
}

TEST(Grammar, BothSpellingsAndBothForms) {  // 14
  for (const char* line :
       {"--nproc_per_node=2 train.py", "--nproc-per-node=2 train.py", "--nproc_per_node 2 train.py",
        "--nproc-per-node 2 train.py", "--nproc 2 train.py", "--nproc-p=2 train.py"}) {
    EXPECT_EQ(PlanOf(line).worker_count, 2U) << line;
  }
}

TEST(Grammar, UniquePrefixes) {  // 15
  EXPECT_EQ(PlanOf("--standal train.py").job.run_id, FakeHost().RandomId());
  EXPECT_EQ(PlanOf("--nnode 1 train.py").job.nodes_max, 1U);
  for (const char* line : {"--rdzv x train.py", "--no train.py", "--r 3 train.py"}) {
    const ExitNow exit = ExitOf(Parse(Words(line)));
    EXPECT_EQ(exit.status, 2) << line;
    EXPECT_THAT(exit.text, HasSubstr("ambiguous option")) << line;
  }
  // A whole name is never ambiguous, though it begins another one.
  EXPECT_EQ(PlanOf("--token abc train.py").token, "abc");
}

TEST(Grammar, LastOneWins) {  // 16
  EXPECT_EQ(PlanOf("--role a --role b train.py").role, "b");
  EXPECT_EQ(PlanOf("--role a --role b train.py", {{"PET_ROLE", "c"}}).role, "b");
}

TEST(Grammar, OptionsEndAtTheScript) {  // 17
  EXPECT_THAT(WorkerWords({"train.py", "--help", "-m", "--nproc-per-node", "4", ""}),
              ElementsAre("train.py", "--help", "-m", "--nproc-per-node", "4", ""));
  EXPECT_EQ(PlanOf("train.py --nproc-per-node 4").worker_count, 1U);
}

TEST(Grammar, DoubleDash) {
  EXPECT_THAT(WorkerWords({"--", "train.py", "--", "a"}), ElementsAre("train.py", "--", "a"));
  EXPECT_THAT(WorkerWords({"train.py", "--", "a"}), ElementsAre("train.py", "a"));
  EXPECT_THAT(WorkerWords({"train.py", "--", "--", "a"}), ElementsAre("train.py", "--", "a"));
  EXPECT_THAT(WorkerWords({"train.py", "a", "--", "b"}), ElementsAre("train.py", "a", "--", "b"));
}

TEST(Grammar, ShortOptions) {  // 27
  for (const char* line : {"-r3 train.py", "-r 3 train.py", "-r=3 train.py",
                           "--redirects=3 train.py", "--redir 3 train.py"}) {
    EXPECT_THAT(PlanOf(line).output.stdout_sinks, ElementsAre(testing::Pair(0, StreamSink::kFile)))
        << line;
  }
  const LaunchPlan plan = PlanOf("-mt 3 pkg.mod");
  EXPECT_THAT(plan.argv, ElementsAre("/usr/bin/python3", "-u", "-m", "pkg.mod"));
  EXPECT_EQ(plan.output.stderr_sinks.at(0), StreamSink::kTee);
  EXPECT_EQ(ExitOf(Parse({"-m=1", "pkg.mod"})).status, 2);
}

TEST(Grammar, ValuesMustFollow) {
  const ExitNow at_end = ExitOf(Parse({"--nnodes"}));
  EXPECT_EQ(at_end.status, 2);
  EXPECT_THAT(at_end.text, HasSubstr("--nnodes needs a value (N|MIN:MAX)"));
  const ExitNow before_option = ExitOf(Parse({"--role", "--nnodes", "2", "train.py"}));
  EXPECT_EQ(before_option.status, 2);
  EXPECT_THAT(before_option.text, HasSubstr("--role needs a value"));
  EXPECT_EQ(PlanOf("--role=-x train.py").role, "-x");
  // A negative number is a value, which is then out of range.
  EXPECT_EQ(ExitOf(Parse({"--max-restarts", "-1", "train.py"})).status, 1);
}

TEST(Grammar, EmptyValues) {
  EXPECT_EQ(PlanOf("--role= train.py").role, "");
  // Not the next word.
  EXPECT_EQ(PlanOf("--log_dir= train.py").output.log_dir, "");
  EXPECT_EQ(PlanOf(Parse({"--role", "", "train.py"})).role, "");
}

TEST(Grammar, BracketsAreNoList) { EXPECT_EQ(PlanOf("--role=[a,b] train.py").role, "[a,b]"); }

TEST(Grammar, FlagsTakeNoWords) {
  const LaunchPlan plan = PlanOf("--standalone train.py");
  EXPECT_THAT(plan.entry_point, "train.py");
  EXPECT_EQ(PlanOf("--standalone=false --master_port 1 train.py").job.run_id, "none");
  EXPECT_EQ(ExitOf(Parse({"--standalone=maybe", "train.py"})).status, 2);
}

TEST(Environment, ValueOptions) {  // 24
  const Variables two = {{"PET_NPROC_PER_NODE", "2"}};
  EXPECT_EQ(PlanOf("train.py", two).worker_count, 2U);
  EXPECT_EQ(PlanOf("--nproc-per-node 1 train.py", two).worker_count, 1U);
}

TEST(Environment, TypesHoldAndTheVariableIsNamed) {
  const ExitNow bad_int = ExitOf(Parse({"train.py"}, {{"PET_MAX_RESTARTS", "x"}}));
  EXPECT_EQ(bad_int.status, 2);
  EXPECT_THAT(bad_int.text, HasSubstr("PET_MAX_RESTARTS 'x'"));
  EXPECT_EQ(ExitOf(Parse({"train.py"}, {{"PET_MAX_RESTARTS", ""}})).status, 2);
  EXPECT_EQ(ExitOf(Parse({"train.py"}, {{"PET_NNODES", ""}})).status, 1);
}

TEST(Environment, Flags) {  // 25
  const std::string fresh = FakeHost().RandomId();
  for (const char* on : {"1", "true", "yes", "TRUE", "7", " 1 "}) {
    EXPECT_EQ(PlanOf("train.py", {{"PET_STANDALONE", on}}).job.run_id, fresh) << on;
  }
  for (const char* off : {"0", "false", "no"}) {
    EXPECT_EQ(PlanOf("--master_port 1 train.py", {{"PET_STANDALONE", off}}).job.run_id, "none")
        << off;
  }
  for (const char* bad : {"", "maybe"}) {
    const ExitNow exit = ExitOf(Parse({"train.py"}, {{"PET_STANDALONE", bad}}));
    EXPECT_EQ(exit.status, 1) << bad;
    EXPECT_THAT(exit.text, HasSubstr("PET_STANDALONE")) << bad;
  }
  // The command line wins.
  EXPECT_EQ(PlanOf("--standalone=0 --master_port 1 train.py", {{"PET_STANDALONE", "1"}}).job.run_id,
            "none");
}

TEST(Environment, ProcessVariablesAreNotRead) {
  ASSERT_EQ(setenv("PET_ROLE", "leaked", 1), 0);
  EXPECT_EQ(PlanOf("train.py").role, "default");
  ASSERT_EQ(unsetenv("PET_ROLE"), 0);
}

TEST(Errors, AreOneLine) {
  const ExitNow exit = ExitOf(Parse({"--nnodes", "a\nb\x1b[31m", "train.py"}));
  EXPECT_EQ(exit.status, 1);
  EXPECT_EQ(std::count(exit.text.begin(), exit.text.end(), '\n'), 1);
  EXPECT_THAT(exit.text, testing::Not(HasSubstr("\x1b")));
  const ExitNow long_one = ExitOf(Parse({"--nnodes", std::string(100000, 'x'), "train.py"}));
  EXPECT_LT(long_one.text.size(), 400U);
}

TEST(Errors, PlansHaveNoWarningsByDefault) {
  EXPECT_THAT(Parse({"train.py"}).warnings, IsEmpty());
  EXPECT_THAT(Parse(Words("--nnodes 2 --node_rank 1 --master_addr host0 train.py")).warnings,
              IsEmpty());
}

}  // namespace
}  // namespace ddprun::launcher
