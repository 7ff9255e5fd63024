#include "ddprun/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "ddprun/training_options.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class OptionTableTest : public ::testing::Test {
 protected:
  // Parses with all options of training; what they became is in options_.
  absl::StatusOr<bool> Parse(const std::vector<std::string>& arguments) {
    options_ = {};
    OptionTable table("Trains.\n");
    AddTrainingOptions(&options_, used_, &table);
    absl::StatusOr<bool> help = table.Parse(arguments);
    help_ = table.Help();
    return help;
  }
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    const absl::StatusOr<bool> help = Parse(arguments);
    EXPECT_EQ(help.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(help.status().message());
  }
  std::string WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + name) << text;
    return directory_ + name;
  }
  // The error of a file with this text, without the directory.
  std::string FileError(const std::string& text) {
    const std::string error = ErrorOf({"--config", WriteFile("job.yaml", text)});
    EXPECT_THAT(error, StartsWith(directory_ + "job.yaml:"));
    return error.substr(directory_.size());
  }

  const std::string directory_ = ::testing::TempDir();
  UsedOptions used_ = {
      .data = "Any text.", .gradient_checkpointing = true, .sync_batch_norm = true};
  TrainingOptions options_;
  std::string help_;
};

TEST_F(OptionTableTest, TakesEverySpelling) {
  ASSERT_TRUE(Parse({"--batch_size", "64", "--learning-rate=3e-4", "--mixed_precision", "bf16",
                     "--gradient_checkpointing", "--no_broadcast_buffers", "--data", "a b"})
                  .ok());
  EXPECT_EQ(options_.batch_size, 64);
  EXPECT_EQ(options_.learning_rate, 3e-4);
  EXPECT_EQ(options_.mixed_precision, "bf16");
  EXPECT_TRUE(options_.gradient_checkpointing);
  EXPECT_FALSE(options_.broadcast_buffers);
  EXPECT_EQ(options_.data, "a b");
  // What wasn't given keeps its default.
  EXPECT_EQ(options_.epochs, TrainingOptions().epochs);
}

TEST_F(OptionTableTest, SwitchesTakeWordsToo) {
  ASSERT_TRUE(Parse({"--broadcast_buffers", "false", "--static_graph=yes", "--seed", "7"}).ok());
  EXPECT_FALSE(options_.broadcast_buffers);
  EXPECT_TRUE(options_.static_graph);
  EXPECT_EQ(options_.seed, 7);
}

TEST_F(OptionTableTest, TheLastOneCounts) {
  ASSERT_TRUE(Parse({"--seed", "1", "--seed=2"}).ok());
  EXPECT_EQ(options_.seed, 2);
}

TEST_F(OptionTableTest, BadValuesAreNamedWithWhatTheyMayBe) {
  EXPECT_EQ(ErrorOf({"--batch_size", "many"}),
            "--batch_size 'many': give a whole number from 1 to 1000000000");
  EXPECT_EQ(ErrorOf({"--batch_size", "0"}),
            "--batch_size '0': give a whole number from 1 to 1000000000");
  EXPECT_EQ(ErrorOf({"--learning_rate", "nan"}),
            "--learning_rate 'nan': give a number from 1e-12 to 1e+06");
  EXPECT_EQ(ErrorOf({"--mixed_precision", "bf61"}),
            "--mixed_precision 'bf61': give one of no, fp16, bf16");
  EXPECT_EQ(ErrorOf({"--lr_schedule", "liner"}),
            "--lr_schedule 'liner': give one of constant, linear, cosine; did you mean linear?");
  EXPECT_EQ(ErrorOf({"--static_graph=perhaps"}), "--static_graph 'perhaps': give true or false");
  EXPECT_EQ(ErrorOf({"--seed"}), "--seed needs a value (N)");
  EXPECT_EQ(ErrorOf({"--seed", "--epochs", "3"}), "--seed needs a value (N)");
}

TEST_F(OptionTableTest, UnknownOptionsGetTheNearestName) {
  EXPECT_EQ(ErrorOf({"--bach_size", "3"}),
            "unknown option '--bach_size'; did you mean --batch_size?");
  EXPECT_EQ(ErrorOf({"--lr", "0.1"}), "unknown option '--lr'; did you mean --learning_rate?");
  EXPECT_EQ(ErrorOf({"--no_batch_size"}), "unknown option '--no_batch_size'; --help lists them");
  EXPECT_EQ(ErrorOf({"--wings"}), "unknown option '--wings'; --help lists them");
  EXPECT_THAT(ErrorOf({"train.py"}), StartsWith("unexpected argument 'train.py'"));
  EXPECT_THAT(ErrorOf({"-x"}), StartsWith("unexpected argument '-x'"));
}

TEST_F(OptionTableTest, FilesGiveWhatTheCommandLineDoesNot) {
  const std::string file = WriteFile(
      "job.yaml", "batch_size: 64\nlearning-rate: 3e-4  # dashes too\nstatic_graph: yes\nseed:\n");
  ASSERT_TRUE(Parse({"--config", file, "--batch_size", "16"}).ok());
  EXPECT_EQ(options_.batch_size, 16);
  EXPECT_EQ(options_.learning_rate, 3e-4);
  EXPECT_TRUE(options_.static_graph);
  EXPECT_EQ(options_.seed, TrainingOptions().seed);
}

TEST_F(OptionTableTest, FilesMayBeJson) {
  const std::string file = WriteFile(
      "job.json", R"({"batch_size": 64, "mixed_precision": "bf16", "static_graph": true})");
  ASSERT_TRUE(Parse({"--config=" + file}).ok());
  EXPECT_EQ(options_.batch_size, 64);
  EXPECT_EQ(options_.mixed_precision, "bf16");
  EXPECT_TRUE(options_.static_graph);
}

TEST_F(OptionTableTest, FileErrorsNameFileLineKeyAndValue) {
  EXPECT_EQ(FileError("seed: 1\n\nbatch_size: many\n"),
            "job.yaml:3: batch_size 'many': give a whole number from 1 to 1000000000");
  EXPECT_EQ(FileError("seed: 1\nbach_size: 3\n"),
            "job.yaml:2: unknown option 'bach_size'; did you mean batch_size?");
  EXPECT_EQ(FileError("epochs: [1, 2]\n"),
            "job.yaml:1: epochs: must be one text or number, not a list or mapping");
  EXPECT_EQ(FileError("config: other.yaml\n"), "job.yaml:1: config belongs on the command line");
  EXPECT_THAT(FileError("- 1\n"), HasSubstr("must be lines of 'option: value'"));
  EXPECT_THAT(FileError("seed: 1\nseed: 2\n"), HasSubstr("line 2: the key 'seed' is there twice"));
  EXPECT_THAT(FileError("seed: [1\n"), HasSubstr("line "));
}

// Otherwise a mistake would show only when the command line changes.
TEST_F(OptionTableTest, FilesAreCheckedWhereTheCommandLineWinsToo) {
  const std::string file = WriteFile("job.yaml", "batch_size: many\n");
  EXPECT_THAT(ErrorOf({"--config", file, "--batch_size", "16"}), HasSubstr("batch_size 'many'"));
}

TEST_F(OptionTableTest, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(ErrorOf({"--config", "/nowhere/job.yaml"}),
              StartsWith("--config '/nowhere/job.yaml': can't be read"));
}

TEST_F(OptionTableTest, HelpExplainsEveryOptionWithItsDefault) {
  const absl::StatusOr<bool> help = Parse({"--help", "--wings"});
  ASSERT_TRUE(help.ok());
  EXPECT_TRUE(*help);
  EXPECT_THAT(help_, StartsWith("Trains.\n\nData:\n  --data FILE\n      Any text.\n"));
  EXPECT_THAT(help_, HasSubstr("  --mixed_precision no|fp16|bf16\n"));
  EXPECT_THAT(help_, HasSubstr("  --gradient_checkpointing\n"));
  EXPECT_THAT(help_, HasSubstr("[32]\n"));
  EXPECT_THAT(help_, HasSubstr("  --config FILE\n"));
}

TEST_F(OptionTableTest, WhatAProgramDoesNotHeedIsNoOption) {
  used_ = {};
  for (const char* option : {"--data=x", "--gradient_checkpointing", "--sync_batch_norm"}) {
    EXPECT_THAT(ErrorOf({option}), StartsWith("unknown option '--")) << option;
  }
}

TEST_F(OptionTableTest, OptionsThatExcludeEachOtherAreNamed) {
  ASSERT_TRUE(Parse({"--static_graph", "--gradient_accumulation_steps", "2"}).ok());
  EXPECT_THAT(CheckTrainingOptions(options_).message(), HasSubstr("exclude each other"));
  EXPECT_TRUE(CheckTrainingOptions({}).ok());
  EXPECT_THAT(CheckTrainingOptions({.zero_stage = "3", .find_unused_parameters = true}).message(),
              HasSubstr("excludes find_unused_parameters; give zero_stage 2"));
  EXPECT_THAT(CheckTrainingOptions({.zero_stage = "3", .comm_hook = "bf16"}).message(),
              HasSubstr("zero_stage 3 averages gradients itself"));
}

TEST_F(OptionTableTest, WhatAProgramSetsIsCheckedAsTheCommandLineIs) {
  EXPECT_THAT(CheckTrainingOptions({.zero_stage = "4"}).ToString(),
              StartsWith("INVALID_ARGUMENT: zero_stage '4': give one of 0, 1, 2, 3"));
  EXPECT_THAT(CheckTrainingOptions({.batch_size = 0}).ToString(),
              StartsWith("INVALID_ARGUMENT: batch_size '0': give a whole number from 1"));
}

}  // namespace
}  // namespace ddprun
