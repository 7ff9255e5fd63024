// Ranks that don't do the same: found at once, and explained on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/slow.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Clock = std::chrono::steady_clock;

// What is promised, the end of both processes included. The collectives' own timeout is a minute.
const std::chrono::duration<double> kSoon = std::chrono::seconds(2) * Slow();

class WrongUseTest : public ::testing::Test {
 protected:
  WrongUseTest() : agent_(FakeAgent::Start({.socket_path = directory_.File("agent")})) {}

  // Runs both ranks to their ends.
  void Run(const std::string& how, const std::string& checked,
           const std::map<std::string, std::string>& extra = {}) {
    RunProbe({"wrong", how, checked}, extra);
  }

  void RunProbe(std::vector<std::string> arguments,
                const std::map<std::string, std::string>& extra) {
    arguments.insert(arguments.begin(), InBuildTree("bin/ddp_probe"));
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::map<std::string, std::string> variables = WorkerVariables(directory_.path(), rank, 2);
      variables.insert(extra.begin(), extra.end());
      ranks.emplace_back(arguments, variables, directory_.File("output." + std::to_string(rank)),
                         Process::Start::kForked);
    }
    for (Process& process : ranks) exits_.push_back(process.Wait());
    ended_ = Clock::now();
  }

  // From the second rank's mistake to the end of both processes.
  Clock::duration TimeSinceMistake() const {
    constexpr const char* kWord = "mistake ";
    const std::string output = Output(1);
    const size_t place = output.find(kWord);
    if (place == std::string::npos) return Clock::duration::max();
    const std::chrono::nanoseconds made(std::stoll(output.substr(place + std::strlen(kWord))));
    return ended_.time_since_epoch() - made;
  }

  // The message of a rank's error file; "" when there is none.
  std::string Message(uint32_t rank) const {
    const std::string text = ReadFile(directory_.File("error." + std::to_string(rank)));
    return text.empty() ? "" : nlohmann::json::parse(text)["message"]["message"].get<std::string>();
  }
  std::string Output(uint32_t rank) const {
    return ReadFile(directory_.File("output." + std::to_string(rank)));
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
  std::vector<int> exits_;
  Clock::time_point ended_;
};

TEST_F(WrongUseTest, AnotherModelIsNamedByRankAndParameterOnEveryRank) {
  Run("model", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank),
                HasSubstr("'parameter 1.weight Float [48, 64]' on rank 0 and 'parameter 1.weight "
                          "Float [32, 64]' on rank 1"));
    EXPECT_THAT(Message(rank), StartsWith("INVALID_ARGUMENT: the module differs"));
  }
}

TEST_F(WrongUseTest, FewerBatchesAreFoundWhenTheOtherRankBeginsAnotherStep) {
  Run("uneven", "checked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  const std::string what =
      "the ranks don't do the same: rank 0 is at forward pass 14; rank 1 is at the end "
      "of the program; give all ranks as many batches, or train inside "
      "DistributedDataParallel::Join";
  EXPECT_THAT(Message(0), HasSubstr(what));
  EXPECT_THAT(Message(0), StartsWith("PeerError: "));
  EXPECT_THAT(Message(1), HasSubstr(what));
  EXPECT_THAT(Message(1), StartsWith("FAILED_PRECONDITION: "));
}

TEST_F(WrongUseTest, TheVariableTurnsTheCheckOnToo) {
  Run("uneven", "unchecked", {{"DDPRUN_CHECK_COLLECTIVES", "1"}});
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_THAT(Message(1), HasSubstr("rank 0 is at forward pass 14"));
}

// Negative control of both.
TEST_F(WrongUseTest, WithoutTheCheckFewerBatchesAreOnlyABrokenConnection) {
  Run("uneven", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 0}));
  EXPECT_THAT(Message(0), StartsWith("PeerError: "));
  EXPECT_THAT(Message(0), Not(HasSubstr("the ranks don't do the same")));
}

TEST_F(WrongUseTest, ABackwardPassThatOneRankLeavesOutIsFound) {
  Run("skip", "checked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("rank 0 is at all-reduce of Float ["));
    EXPECT_THAT(Message(rank), HasSubstr("] (after forward pass 6); rank 1 is at forward pass 7;"));
  }
}

TEST_F(WrongUseTest, CollectivesInAnotherOrderAreFound) {
  Run("order", "checked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("rank 0 is at all-reduce of Float [1000]; rank 1 is at "
                                         "barrier; all ranks must"));
  }
}

TEST_F(WrongUseTest, AModuleOnAnotherDeviceIsToldToTheOtherRanks) {
  Run("device", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  const std::string what = "parameter 'odd' is on meta, this worker's device is cpu";
  EXPECT_THAT(Message(0), StartsWith("PeerError: rank 1 can't train: " + what));
  EXPECT_THAT(Message(1), StartsWith("INVALID_ARGUMENT: " + what));
}

TEST_F(WrongUseTest, ALossThatIsNoNumberIsNamedByRankAndParameterOnEveryRank) {
  Run("nan_loss", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  const std::string what = "the loss is nan; the parameter 'b.weight' has a NaN or infinite value";
  EXPECT_THAT(Message(0), StartsWith("PeerError: rank 1 failed: " + what + " (seen here as: "));
  EXPECT_THAT(Message(1), StartsWith("FAILED_PRECONDITION: " + what));
  EXPECT_THAT(Output(1), HasSubstr("ddprun: worker of rank 1: FAILED_PRECONDITION: " + what));
}

// The NaN reaches all ranks with the average of the gradients.
TEST_F(WrongUseTest, AGradientThatIsNoNumberIsNamedByParameterOnEveryRank) {
  Run("nan_gradient", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("the gradient of 'a.weight' has a NaN or infinite value"));
  }
}

TEST_F(WrongUseTest, SamplesOfDifferentLengthsAreToldToTheOtherRanks) {
  Run("ragged", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  const std::string what =
      "stack expects each tensor to be equal size, but got [20] at entry 0 and [19] at entry 3";
  EXPECT_THAT(Message(0), StartsWith("PeerError: rank 1 failed: c10::Error: " + what));
  EXPECT_THAT(Message(1), StartsWith("c10::Error: " + what));
}

TEST_F(WrongUseTest, AnUnknownBackendIsRefused) {
  Run("no_backend", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), StartsWith("INVALID_ARGUMENT: unknown backend 'gluu'; use auto, "));
  }
}

TEST_F(WrongUseTest, ABackendThatOneRankDoesntKnowIsToldToTheOthers) {
  Run("backend", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  EXPECT_THAT(Message(0),
              StartsWith("PeerError: rank 1 can't take part: unknown backend 'gluu'; use auto, "));
  EXPECT_THAT(Message(1), StartsWith("INVALID_ARGUMENT: unknown backend 'gluu'"));
}

TEST_F(WrongUseTest, DifferentBackendsAreNamedByRankOnEveryRank) {
  Run("other_backend", "unchecked");
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_LT(TimeSinceMistake(), kSoon);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), StartsWith("INVALID_ARGUMENT: the backend differs between the "
                                          "ranks: 'gloo' on rank 0, 'shm' on rank 1; "));
  }
}

// The collective_timeout is 5 s here; torch's own would be half an hour.
TEST_F(WrongUseTest, APeerThatStopsIsAPeersErrorAfterTheCollectivesTimeout) {
  const auto start = [this](uint32_t rank) {
    return Process({InBuildTree("bin/ddp_probe"), "wrong", "stop", "unchecked"},
                   WorkerVariables(directory_.path(), rank, 2),
                   directory_.File("output." + std::to_string(rank)));
  };
  const Clock::time_point begin = Clock::now();
  Process waiting = start(0);
  const Process stopped = start(1);  // killed by its destructor
  EXPECT_EQ(waiting.Wait(), 1);
  EXPECT_GE(Clock::now() - begin, std::chrono::seconds(5));  // negative control of all bounds above
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15) * Slow());
  EXPECT_THAT(Message(0), StartsWith("PeerError: gloo::"));
  EXPECT_THAT(Message(0), HasSubstr("Timed out waiting 5000ms"));
}

TEST_F(WrongUseTest, WhatIsRightPassesTheCheck) {
  RunProbe({"train", directory_.File("out"), "base", "no_sync", "unused", "join", "join_unused",
            "own_hook", "base"},
           {{"DDPRUN_CHECK_COLLECTIVES", "1"}});
  EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
}

TEST_F(WrongUseTest, TorchsOwnDebuggingComparesCollectivesAndIsShownAtTheStart) {
  Run("order", "unchecked", {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}, {"NCCL_DEBUG", "WARN"}});
  EXPECT_THAT(Message(0) + Message(1), HasSubstr("Detected mismatch between collectives on ranks"));
  EXPECT_THAT(Output(0), HasSubstr("rank 0 communicates over gloo with NCCL_DEBUG=WARN "
                                   "TORCH_DISTRIBUTED_DEBUG=DETAIL"));
  EXPECT_THAT(Output(1), Not(HasSubstr("communicates over")));
}

}  // namespace
}  // namespace ddprun::testing
