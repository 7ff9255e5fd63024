// What a worker leaves behind when it, or a peer, fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tests/support/slow.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class FailureTest : public ::testing::Test {
 protected:
  void SetUp() override { agent_ = FakeAgent::Start({.socket_path = directory_.File("agent")}); }

  // Starts rank `rank` of two.
  Process Start(uint32_t rank, const std::string& how, const std::string& backend = "gloo") const {
    auto variables = WorkerVariables(directory_.path(), rank, 2);
    variables["DDPRUN_BACKEND"] = backend;
    return Process({InBuildTree("bin/ddp_probe"), "die", how}, variables,
                   directory_.File("output." + std::to_string(rank)), Process::Start::kForked);
  }

  // The message of a rank's error file; "" when there is none.
  std::string Message(uint32_t rank) const {
    const std::string text = ReadFile(directory_.File("error." + std::to_string(rank)));
    return text.empty() ? "" : nlohmann::json::parse(text)["message"]["message"].get<std::string>();
  }
  std::string Stack(uint32_t rank) const {
    const std::string text = ReadFile(directory_.File("error." + std::to_string(rank)));
    return nlohmann::json::parse(text)["message"]["extraInfo"]["py_callstack"].get<std::string>();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
};

TEST_F(FailureTest, AKilledPeerIsAPeerErrorAtTheSurvivor) {
  Process survivor = Start(0, "kill");
  Process victim = Start(1, "kill");
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  const auto died = std::chrono::steady_clock::now();
  EXPECT_EQ(survivor.Wait(), 1);
  // Gloo notices in 5-70 ms; the rest is for a machine that is busy with other things.
  EXPECT_LT(std::chrono::steady_clock::now() - died, std::chrono::seconds(10) * Slow());
  EXPECT_THAT(Message(0), StartsWith("PeerError: gloo::IoException: "));
  EXPECT_EQ(Message(1), "");
  EXPECT_THAT(survivor.Output(), HasSubstr("ddprun: worker of rank 0: PeerError: "));
}

TEST_F(FailureTest, AKilledPeerIsAPeerErrorInSharedMemoryTooAndNamed) {
  Process survivor = Start(0, "kill", "shm");
  Process victim = Start(1, "kill", "shm");
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  EXPECT_EQ(survivor.Wait(), 1);
  EXPECT_THAT(Message(0), StartsWith("PeerError: ddprun::worker::PeerFailure: rank 1 (pid "));
}

// Where Gloo aborts a process, as the test of the same name without shared memory shows.
TEST_F(FailureTest, AMismatchOfCollectivesIsNamedOnBothRanksInSharedMemory) {
  Process one = Start(0, "mismatch", "shm");
  Process other = Start(1, "mismatch", "shm");
  EXPECT_EQ(one.Wait(), 1);
  EXPECT_EQ(other.Wait(), 1);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), StartsWith("std::invalid_argument: the ranks called different"));
  }
}

TEST_F(FailureTest, AutoSaysWhatItTookAndWhy) {
  Process one = Start(0, "none", "auto");
  Process other = Start(1, "none", "");
  EXPECT_EQ(one.Wait(), 0);
  EXPECT_EQ(other.Wait(), 0);
  EXPECT_THAT(one.Output(),
              HasSubstr("ddprun: backend shm: all 2 workers are on one host and train on the CPU"));
  EXPECT_EQ(other.Output(), "");
}

TEST_F(FailureTest, TheRankThatFailedSaysWhyAndItsPeerDoesNot) {
  Process peer = Start(0, "throw");
  Process culprit = Start(1, "throw");
  EXPECT_EQ(culprit.Wait(), 1);
  EXPECT_EQ(peer.Wait(), 1);
  EXPECT_EQ(Message(1), "std::runtime_error: bad sample 17");
  EXPECT_THAT(Message(0), StartsWith("PeerError: "));
}

// Gloo throws this one on a thread of its own.
TEST_F(FailureTest, AMismatchOfCollectivesIsReportedThoughNobodyCanCatchIt) {
  Process one = Start(0, "mismatch");
  Process other = Start(1, "mismatch");
  const int one_end = one.Wait();
  const int other_end = other.Wait();
  EXPECT_TRUE(one_end == -SIGABRT || other_end == -SIGABRT) << one_end << " " << other_end;
  const std::string messages = Message(0) + Message(1);
  EXPECT_THAT(messages, HasSubstr("gloo::EnforceNotMet"));
}

// A pipe with a name, in which a test reads what a process prints while it runs.
class PrintedLines {
 public:
  explicit PrintedLines(const std::string& path) {
    DDPRUN_CHECK(mkfifo(path.c_str(), 0600) == 0, path);
    file_ = fdopen(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), "r");
  }
  ~PrintedLines() { fclose(file_); }
  PrintedLines(const PrintedLines&) = delete;
  PrintedLines& operator=(const PrintedLines&) = delete;

  // Waits for a line with `words`; false: the process, which has started, has ended without.
  bool Await(const std::string& words) {
    fcntl(fileno(file_), F_SETFL, 0);
    char line[4096];
    while (fgets(line, sizeof(line), file_) != nullptr) {
      if (std::string(line).find(words) != std::string::npos) return true;
    }
    return false;
  }

 private:
  FILE* file_;
};

class HostOfTheStoreTest : public FailureTest, public ::testing::WithParamInterface<const char*> {};

// Where no launcher serves the store, rank 0 does: it used to take its words with it when it ended
// before the others had asked for them.
TEST_P(HostOfTheStoreTest, StaysUntilTheOthersKnowWhyItFailed) {
  const std::string port = std::to_string(FreePort());
  PrintedLines printed(directory_.File("output.0"));
  std::vector<Process> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    auto variables = WorkerVariables(directory_.path(), rank, 2);
    variables["DDPRUN_BACKEND"] = GetParam();
    variables["DDPRUN_AGENT"] = "";
    variables["MASTER_PORT"] = port;
    variables["LOGLEVEL"] = "INFO";
    ranks.emplace_back(std::vector<std::string>{InBuildTree("bin/ddp_probe"), "die", "first"},
                       variables, directory_.File("output." + std::to_string(rank)));
  }
  ASSERT_TRUE(ranks[1].AwaitStop()) << ranks[1].Output();
  EXPECT_TRUE(printed.Await("stays until the others have read why it failed"));
  ranks[1].Kill(SIGCONT);
  EXPECT_EQ(ranks[1].Wait(), 1);
  EXPECT_EQ(ranks[0].Wait(), 1);
  EXPECT_EQ(Message(0), "NOT_FOUND: no sample is left");
  EXPECT_THAT(Message(1),
              StartsWith("PeerError: rank 0 failed: no sample is left (seen here as: "));
}

INSTANTIATE_TEST_SUITE_P(Backends, HostOfTheStoreTest, ::testing::Values("gloo", "shm"),
                         [](const auto& parameter) { return parameter.param; });

TEST_F(FailureTest, TheEndOfTheGenerationEndsAWorkerThatWaitsForItsPeers) {
  Process lonely = Start(0, "none");
  agent_->AwaitWaiters(1);
  agent_->EndGeneration("node b was lost");
  EXPECT_EQ(lonely.Wait(), 1);
  EXPECT_THAT(Message(0), StartsWith("PeerError: c10::DistStoreError: ABORTED: "));
  EXPECT_THAT(Message(0), HasSubstr("node b was lost"));
  EXPECT_THAT(Stack(0), HasSubstr("frame #"));  // where LibTorch threw it
}

TEST_F(FailureTest, AWorkerOfAnOlderGenerationIsTurnedAway) {
  Process late({InBuildTree("bin/ddp_probe"), "die", "none"},
               WorkerVariables(directory_.path(), 0, 2, 7), directory_.File("output.0"));
  EXPECT_EQ(late.Wait(), 1);
  EXPECT_THAT(Message(0), Not(StartsWith("PeerError: std")));
  EXPECT_THAT(Message(0), HasSubstr("no newer generation"));
}

TEST_F(FailureTest, ABadEnvironmentIsNamed) {
  auto variables = WorkerVariables(directory_.path(), 0, 2);
  variables["WORLD_SIZE"] = "two";
  Process confused({InBuildTree("bin/ddp_probe"), "die", "none"}, variables,
                   directory_.File("output.0"));
  EXPECT_EQ(confused.Wait(), 1);
  EXPECT_THAT(Message(0), StartsWith("INVALID_ARGUMENT: environment variable WORLD_SIZE is 'two'"));
}

}  // namespace
}  // namespace ddprun::testing
