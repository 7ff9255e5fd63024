// The Session over real processes: what it trains, and how its errors reach every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tests/worker/session_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::StartsWith;

// 64 points in passes of 4 a rank: with two ranks 8 steps of 8 in an epoch, and there are two
// epochs.
TEST_F(SessionTest, EveryBatchIsTrainedOnAndAccumulatedOnesMakeOneStep) {
  const auto plain = RunWell("train");
  EXPECT_EQ(plain.at("batches"), "16");
  EXPECT_EQ(plain.at("stepped"), "16");
  const auto accumulated = RunWell("train", {"--gradient_accumulation_steps", "2"});
  EXPECT_EQ(accumulated.at("batches"), "16");
  EXPECT_EQ(accumulated.at("stepped"), "8");
  EXPECT_EQ(accumulated.at("steps"), "8");
}

// With two ranks a sum has one order, and halving is exact; each stage's SGD may round an update,
// of at most 1, and a weight, of at most 4, otherwise than another's: 16 steps of 5 units in the
// last place, which momentum of a half doubles at most.
TEST_F(SessionTest, ZeroIsOneOptionAndChangesNothingButMemory) {
  const double bound = 2 * 16 * 5 * std::ldexp(1.0, -24);
  for (const char* passes : {"1", "2"}) {
    const auto expected = RunWell("train", {"--gradient_accumulation_steps", passes});
    for (const char* stage : {"1", "2", "3"}) {
      const auto shared =
          RunWell("train", {"--gradient_accumulation_steps", passes, "--zero_stage", stage});
      for (const char* name : {"weight", "bias"}) {
        EXPECT_NEAR(std::stod(shared.at(name)), std::stod(expected.at(name)), bound) << stage;
      }
    }
  }
  // Negative control: another order of the samples ends elsewhere.
  const auto plain = RunWell("train");
  const auto other = RunWell("train", {"--seed", "2"});
  EXPECT_GT(std::abs(std::stod(other.at("weight")) - std::stod(plain.at("weight"))), 100 * bound);
}

TEST_F(SessionTest, ParameterGroupsKeepTheirShareOfTheRate) {
  for (const char* stage : {"0", "2", "3"}) {
    const auto seen = RunWell(
        "groups", {"--lr_schedule", "constant", "--weight_decay", "0.5", "--zero_stage", stage});
    EXPECT_EQ(seen.at("rate0"), "0.25");
    EXPECT_EQ(seen.at("decay0"), "0.5");
    EXPECT_EQ(seen.at("rate1"), "0.03125");
    EXPECT_EQ(seen.at("decay1"), "0");
  }
}

// Each of these mistakes trained something else on each rank, or hung at the end.
TEST_F(SessionTest, RanksThatTrainSomethingElseAreNamedAtTheStart) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"--data=65", "between the ranks: '64 samples' on rank 0 and '65 samples' on rank 1"},
      {"--batch_size=5", "'--batch_size 4' on rank 0 and '--batch_size 5' on rank 1"},
      {"--seed=2", "'--seed 1' on rank 0 and '--seed 2' on rank 1"},
      {"--epochs=3", "'--epochs 2' on rank 0 and '--epochs 3' on rank 1"},
      {"--data=momentum",
       "'SGD with momentum 0.5' on rank 0 and 'SGD with momentum 0.25' on rank 1"}};
  for (const auto& [mistake, words] : mistakes) {
    for (const char* survives : {"--in_process_restart", "--no_in_process_restart"}) {
      Run("train", {survives}, 2, mistake);
      EXPECT_EQ(exits_, std::vector<int>({1, 1})) << mistake << Output(0) << Output(1);
      for (const uint32_t rank : {0, 1}) {
        EXPECT_THAT(Message(rank), StartsWith("INVALID_ARGUMENT: the training differs between the "
                                              "ranks: '"));
        EXPECT_THAT(Message(rank), HasSubstr(words));
        EXPECT_THAT(Message(rank), HasSubstr("all of the data"));
      }
    }
  }
}

// What concerns one worker alone; and what torch's generator changes in the samples.
TEST_F(SessionTest, RanksMayDifferInWhatChangesNothing) {
  for (const char* difference : {"--num_workers=2", "--threads=2"}) {
    Run("train", {"--data", "drawn"}, 2, difference);
    EXPECT_EQ(exits_, std::vector<int>({0, 0})) << difference << Output(0) << Output(1);
    EXPECT_THAT(Output(0), Not(HasSubstr("differs")));
  }
}

TEST_F(SessionTest, SamplesThatSeemToDifferAreNamedAndTrainedOn) {
  for (const char* survives : {"--in_process_restart", "--no_in_process_restart"}) {
    Run("train", {survives}, 2, "--data=shifted");
    EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
    EXPECT_THAT(Output(0), HasSubstr("what is learned from differs between the ranks: "
                                     "'sample 0: inputs Float [1, 1] "));
    EXPECT_THAT(Output(0), HasSubstr("every rank needs all of them"));
    EXPECT_THAT(Output(1), Not(HasSubstr("differs")));
  }
}

TEST_F(SessionTest, AThrownStatusReachesEveryRankAsAReturnedOneWould) {
  Run("throw", {"--no_in_process_restart"});
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_THAT(Message(1), StartsWith("DATA_LOSS: points.csv is cut short"));
  EXPECT_THAT(Message(0), StartsWith("PeerError: rank 1 failed: "));
  EXPECT_THAT(Message(0), HasSubstr("points.csv is cut short"));
}

// No generation ends by that, so the rank that goes on would wait for nothing.
TEST_F(SessionTest, WhoLeavesWithStatusZeroIsNamed) {
  const std::pair<const char*, const char*> ways[] = {
      {"break", "rank 1 left the loop after step 2, with status 0, while rank 0 goes on"},
      {"exit", "rank 1 called exit(), with status 0, while rank 0 goes on"}};
  for (const auto& [way, words] : ways) {
    for (const char* survives : {"--in_process_restart", "--no_in_process_restart"}) {
      Run(way, {survives});
      EXPECT_EQ(exits_, std::vector<int>({1, 0})) << way << survives << Output(0) << Output(1);
      EXPECT_THAT(Message(0), StartsWith(std::string("PeerError: ") + words)) << survives;
    }
  }
}

// The rank's generation ends, so that with survivors the others go on.
TEST_F(SessionTest, WhoExitsWithAnErrorHasNotLeft) {
  Run("fail", {"--no_in_process_restart"});
  EXPECT_EQ(exits_, std::vector<int>({1, 3}));
  EXPECT_THAT(Message(0), testing::Not(HasSubstr("with status 0")));
}

// A step takes 9 samples, and the eighth step has one left: two of three ranks, or two of three
// passes, have none. Each way to divide the samples must give what one rank gives with steps of 9.
// A mean over 9 may round differently in each of its sums and in its three weights: 12 units in the
// last place of a gradient of at most 16, times the rate of a quarter; the update 5 more, of
// numbers up to 4. Momentum doubles the error, over 16 steps.
TEST_F(SessionTest, EachSampleCountsOnceHoweverItIsDealt) {
  const double bound = 2 * 16 * (12 * 16 / 4 + 5 * 4) * std::ldexp(1.0, -24);
  const auto trained = [this](uint32_t ranks, std::vector<std::string> options) {
    const auto seen = Run("train", options, ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(exits_[rank], 0) << Output(rank);
    for (uint32_t rank = 1; rank < ranks; ++rank) EXPECT_EQ(seen[rank], seen[0]);
    return seen[0];
  };
  const auto alone = trained(1, {"--batch_size", "9"});
  EXPECT_EQ(alone.at("steps"), "16");
  const std::vector<std::pair<uint32_t, std::vector<std::string>>> ways = {
      {3, {"--batch_size", "3"}},
      {3, {"--batch_size", "3", "--zero_stage", "2"}},
      {1, {"--batch_size", "3", "--gradient_accumulation_steps", "3"}},
      {3, {"--batch_size", "1", "--gradient_accumulation_steps", "3", "--num_workers", "2"}}};
  for (const auto& [ranks, options] : ways) {
    const auto dealt = trained(ranks, options);
    EXPECT_EQ(dealt.at("steps"), "16");
    for (const char* name : {"weight", "bias"}) {
      EXPECT_NEAR(std::stod(dealt.at(name)), std::stod(alone.at(name)), bound) << options[1];
    }
  }
  // Negative control: a step of 8 leaves none over, and ends elsewhere.
  const auto other = trained(1, {"--batch_size", "8"});
  EXPECT_GT(std::abs(std::stod(other.at("weight")) - std::stod(alone.at("weight"))), 10 * bound);
}

// A training that goes on from its checkpoints with other numbers of workers each time, at random:
// it learns from 9 samples a step all along, 3 a pass at most, as one rank does. The bound is that
// of the test before, with twice as many sums and weights: a rank may have three passes.
TEST_F(SessionTest, AStepStaysWhatItIsAtAnyNumberOfWorkers) {
  const double bound = 2 * 16 * (2 * 12 * 16 / 4 + 5 * 4) * std::ldexp(1.0, -24);
  const auto alone = Run("train", {"--batch_size", "9", "--lr_schedule", "constant"}, 1)[0];
  const auto distance_after = [&](const std::vector<uint32_t>& worlds,
                                  const std::vector<std::string>& more) {
    const std::vector<int64_t> steps = {5, 9, 16};
    std::filesystem::remove_all(directory_.File("checkpoints"));
    std::map<std::string, std::string> seen;
    for (size_t i = 0; i < steps.size(); ++i) {
      std::vector<std::string> options = {"--batch_size",     "3",
                                          "--lr_schedule",    "constant",
                                          "--steps",          std::to_string(steps[i]),
                                          "--checkpoint_dir", directory_.File("checkpoints")};
      options.insert(options.end(), more.begin(), more.end());
      seen = Run("train", options, worlds[i])[0];
      for (uint32_t rank = 0; rank < worlds[i]; ++rank) EXPECT_EQ(exits_[rank], 0) << Output(rank);
    }
    double distance = 0;
    for (const char* name : {"weight", "bias"}) {
      distance = std::max(distance, std::abs(std::stod(seen[name]) - std::stod(alone.at(name))));
    }
    return distance;
  };
  Rng random(RandomNumber());
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {},
           {"--zero_stage", "2"},
           {"--lr_scaling", "sqrt", "--learning_rate", "0.14433756729740643"}}) {
    std::vector<uint32_t> worlds = {3};
    while (worlds.size() < 3) worlds.push_back(1 + static_cast<uint32_t>(random.Below(4)));
    EXPECT_LE(distance_after(worlds, more), bound) << ::testing::PrintToString(worlds);
  }
  // Negative control: the others would have learned from more, or less.
  EXPECT_GT(distance_after({3, 1, 2}, {"--constant_batch", "worker"}), 10 * bound);
}

// A weight is at most 4. A step rounds the average by 2 u of that for the difference and the
// product, times a quarter, and by u for the sum: 1.5 u. It keeps three quarters of what earlier
// steps left, so 4 times as much in all. With a zero_stage only rank 0 has a share of the two
// parameters. With fp16 the first steps are left out, until the loss scale is low enough.
TEST_F(SessionTest, EvaluationsAreOfTheAverageOfTheStepsThatWereDone) {
  const double bound = 4 * 4 * 1.5 * std::ldexp(1.0, -24);
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--mixed_precision", "fp16"}, {"--zero_stage", "3"}}) {
    std::vector<std::string> options = {"--ema_decay", "0.75"};
    options.insert(options.end(), more.begin(), more.end());
    const auto seen = RunWell("average", options);
    EXPECT_NEAR(std::stod(seen.at("evaluated")), std::stod(seen.at("average")), bound);
    EXPECT_EQ(std::stoi(seen.at("left_out")) > 0, more[1] == "fp16");
  }
  // Negative control: the last weight is another one, and is what is evaluated without an average.
  const auto plain = RunWell("average");
  EXPECT_EQ(plain.at("evaluated"), plain.at("weight"));
  EXPECT_GT(std::abs(std::stod(plain.at("evaluated")) - std::stod(plain.at("average"))),
            100 * bound);
}

// With two ranks a sum has one order, and halving is exact, in bf16 too.
TEST_F(SessionTest, Bf16ParametersHaveMastersInEachStage) {
  const std::vector<std::string> common = {"--learning_rate", "0.001", "--lr_schedule", "constant"};
  const auto trained = [&](std::vector<std::string> options) {
    options.insert(options.end(), common.begin(), common.end());
    return RunWell("narrow", options);
  };
  const auto expected = trained({});
  EXPECT_EQ(expected.at("steps"), "16");
  EXPECT_EQ(trained({"--zero_stage", "1"}), expected);
  // The same from a checkpoint of another stage, saved after 8 steps, when masters have more bits
  // than parameters.
  const std::string directory = directory_.File("checkpoints");
  trained({"--zero_stage", "3", "--steps", "8", "--checkpoint_dir", directory});
  EXPECT_EQ(trained({"--zero_stage", "2", "--checkpoint_dir", directory}), expected);
  // Negative control: other steps end elsewhere.
  EXPECT_NE(trained({"--seed", "2"}).at("parameters"), expected.at("parameters"));
}

TEST_F(SessionTest, DataThatDontFillAStepMakeASmallerOne) {
  const auto seen = RunWell("train", {"--batch_size", "33"});
  EXPECT_EQ(seen.at("steps"), "2");
}

TEST_F(SessionTest, OptionsThatAreNotUnderstoodEndWithTwo) {
  Run("train", {"--zero_stage", "4"});
  EXPECT_EQ(exits_, std::vector<int>({2, 2}));
  EXPECT_THAT(Message(0), HasSubstr("--zero_stage '4': give one of 0, 1, 2, 3"));
}

TEST_F(SessionTest, MistakesSayWhatIsMissingAndLeaveTheSessionAsItWas) {
  const auto seen = Run("misuse", {"--gradient_accumulation_steps", "2", "--steps", "2"}, 1)[0];
  EXPECT_EQ(exits_, std::vector<int>({0})) << Output(0);
  const std::map<std::string, std::string> expected = {
      {"zero_stage", "INVALID_ARGUMENT: zero_stage '4': give one of 0, 1, 2, 3"},
      {"rows", "INVALID_ARGUMENT: a dataset of 3 inputs and 4 targets"},
      {"early_loop", "FAILED_PRECONDITION: Batches() before Prepare()"},
      {"early_save", "FAILED_PRECONDITION: Save() before Prepare()"},
      {"early_optimizer", "FAILED_PRECONDITION: optimizer() before Prepare()"},
      {"early_metrics", "FAILED_PRECONDITION: metrics() before Prepare()"},
      {"no_load", "INVALID_ARGUMENT: Prepare() with a dataset of 64 samples without a function"},
      {"second_prepare", "FAILED_PRECONDITION: Prepare() was called twice"},
      {"backward_outside", "FAILED_PRECONDITION: Backward() without a batch"},
      {"step_outside", "FAILED_PRECONDITION: Step() without a batch"},
      {"early_step", "FAILED_PRECONDITION: Step() before Backward()"},
      {"bypassed", "FAILED_PRECONDITION: Backward() of a loss that the session's model had no"},
      {"ungraded",
       "FAILED_PRECONDITION: the session's model was called without gradients: end the"},
      {"vector", "INVALID_ARGUMENT: Backward() takes a loss of one number, this one is [4, 1]"},
      {"undefined", "INVALID_ARGUMENT: Backward() takes a loss of one number, this one is undef"},
      {"detached", "INVALID_ARGUMENT: the loss depends on no parameter that is trained"},
      {"second_backward", "FAILED_PRECONDITION: Backward() was called twice for one batch"},
      {"no_step", "FAILED_PRECONDITION: a batch of step 1 got no Step()"},
      {"second_step", "FAILED_PRECONDITION: Step() without a batch"},
      {"save_midway", "FAILED_PRECONDITION: Save() in the middle of a step"},
      {"steps", "2"}};
  for (const auto& [name, text] : expected) {
    ASSERT_THAT(seen, Contains(Key(name)));
    EXPECT_THAT(seen.at(name), StartsWith(text)) << name;
  }
}

}  // namespace
}  // namespace ddprun::testing
