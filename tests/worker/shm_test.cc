// The backends of shared memory in real processes, beside Gloo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What is ours there; others use it beside these tests.
std::ptrdiff_t NamesInDevShm() {
  return std::count_if(std::filesystem::directory_iterator("/dev/shm"),
                       std::filesystem::directory_iterator(), [](const auto& entry) {
                         return absl::StrContains(entry.path().filename().string(), "ddprun");
                       });
}

class BackendTest : public ::testing::Test {
 protected:
  // `hosts`: one digit a rank.
  std::vector<Process> Start(const std::string& mode, const std::string& backend,
                             const std::string& hosts) const {
    std::vector<Process> ranks;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      const std::string number = std::to_string(rank);
      ranks.emplace_back(std::vector<std::string>{InBuildTree("bin/collectives_probe"), mode,
                                                  backend, number, hosts, directory_.File("store")},
                         std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}},
                         directory_.File("output." + number), Process::Start::kForkedAnywhere);
    }
    return ranks;
  }

  TemporaryDirectory directory_;
};

struct Layout {
  const char* backend;
  const char* hosts;
};

class CollectivesTest : public BackendTest, public ::testing::WithParamInterface<Layout> {};

TEST_P(CollectivesTest, EveryCollectiveTypeAndReductionGivesWhatItMust) {
  std::vector<Process> ranks = Start("compare", GetParam().backend, GetParam().hosts);
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.Wait(), 0) << rank.Output();
    EXPECT_THAT(rank.Output(), HasSubstr(" comparisons"));
  }
}

// An all-gather used to be a broadcast for each rank.
TEST_F(BackendTest, AnAllGatherIsOneCollectiveBetweenTheHosts) {
  const std::string hosts = "01101";
  std::vector<Process> ranks = Start("count", "hierarchical", hosts);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 0) << ranks[rank].Output();
    const bool leads = rank < 2;
    EXPECT_THAT(ranks[rank].Output(), HasSubstr(leads ? "2 between hosts" : "0 between hosts"));
  }
}

TEST_P(CollectivesTest, AnAllReduceRunsWhileItsCallerGoesOn) {
  for (Process& rank : Start("overlap", GetParam().backend, GetParam().hosts)) {
    EXPECT_EQ(rank.Wait(), 0) << rank.Output();
  }
}

TEST_P(CollectivesTest, AKilledPeerIsAPeerErrorLongBeforeAnyTimeout) {
  std::vector<Process> ranks = Start("kill", GetParam().backend, GetParam().hosts);
  EXPECT_EQ(ranks.back().Wait(), -SIGKILL);
  const auto died = std::chrono::steady_clock::now();
  ranks.pop_back();
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.Wait(), 1);
    EXPECT_THAT(rank.Output(), StartsWith("PeerError: "));
  }
  // Milliseconds, unless the machine is busy. The collectives' own timeout is a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - died, std::chrono::seconds(55));
  EXPECT_EQ(NamesInDevShm(), 0);
}

TEST_P(CollectivesTest, APeerThatLeavesIsAPeerErrorForWhoWaitsForIt) {
  std::vector<Process> ranks = Start("leave", GetParam().backend, GetParam().hosts);
  EXPECT_EQ(ranks.back().Wait(), 0);
  ranks.pop_back();
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.Wait(), 1);
    EXPECT_THAT(rank.Output(), StartsWith("PeerError: "));
  }
}

TEST_P(CollectivesTest, APeerThatDoesNotComeIsATimeout) {
  std::vector<Process> ranks = Start("timeout", GetParam().backend, GetParam().hosts);
  for (size_t rank = 0; rank + 1 < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Output(), StartsWith("PeerError: "));
  }
}

TEST_P(CollectivesTest, AnAbortEndsTheWaitsOfAll) {
  const auto before = std::chrono::steady_clock::now();
  std::vector<Process> ranks = Start("abort", GetParam().backend, GetParam().hosts);
  for (size_t rank = 0; rank + 1 < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 1);
    EXPECT_THAT(ranks[rank].Output(), StartsWith("PeerError: "));
  }
  // The collectives' own timeout is a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(55));
}

INSTANTIATE_TEST_SUITE_P(Layouts, CollectivesTest,
                         ::testing::ValuesIn(FewOrAll<Layout>(
                             {{"shm", "000"}, {"hierarchical", "001"}, {"hierarchical", "0110"}},
                             {{"shm", "00"}, {"shm", "0000"}})),
                         [](const auto& test) {
                           return std::string(test.param.backend) + "_" + test.param.hosts;
                         });

TEST_F(BackendTest, ABrokenConnectionIsNotTheEndOfTheProcess) {
  for (const char* backend : {"gloo", "shm"}) {
    for (Process& rank : Start("pipe", backend, "00")) EXPECT_EQ(rank.Wait(), 0) << rank.Output();
  }
}

TEST_F(BackendTest, ShmNamesWhoDied) {
  std::vector<Process> ranks = Start("kill", "shm", "00");
  ranks[1].Wait();
  ranks[0].Wait();
  EXPECT_THAT(ranks[0].Output(), ::testing::MatchesRegex("PeerError: ddprun::worker::PeerFailure: "
                                                         "rank 1 \\(pid [0-9]+\\) ended\n"));
}

TEST_F(BackendTest, ShmNamesWhoDidNotCome) {
  std::vector<Process> ranks = Start("timeout", "shm", "00");
  ranks[0].Wait();
  EXPECT_THAT(ranks[0].Output(), HasSubstr("rank 1 (pid "));
  EXPECT_THAT(ranks[0].Output(), HasSubstr("didn't come to all-reduce of 1000 float32 (sum)"));
}

// With Gloo one rank would be aborted, and the other might wait for the timeout.
TEST_F(BackendTest, ShmNamesDifferentSizesOnEveryRank) {
  for (const char* hosts : {"00", "000"}) {
    std::filesystem::remove(directory_.File("store"));
    for (Process& rank : Start("mismatch", "shm", hosts)) {
      EXPECT_EQ(rank.Wait(), 1);
      EXPECT_THAT(rank.Output(), HasSubstr("the ranks called different collectives: rank 0 "));
      EXPECT_THAT(rank.Output(), HasSubstr("called all-reduce of 1000 float32 (sum), rank "));
      EXPECT_THAT(rank.Output(), HasSubstr(" all-reduce of 3 float32 (sum)"));
    }
  }
}

// What follows each "loss": in a journal, with all its digits.
std::vector<std::string> LossesOf(const std::string& journal) {
  constexpr std::string_view kKey = "\"loss\":";
  std::vector<std::string> losses;
  for (size_t at = journal.find(kKey); at != std::string::npos; at = journal.find(kKey, at)) {
    at += kKey.size();
    losses.push_back(journal.substr(at, journal.find(',', at) - at));
  }
  return losses;
}

// The digits example, two workers, two epochs: the loss of each of rank 0's steps.
std::vector<std::string> LossesOfDigits(const std::string& backend) {
  const TemporaryDirectory directory;
  const auto agent = FakeAgent::Start({.socket_path = directory.File("agent")});
  std::vector<Process> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(
        std::vector<std::string>{InBuildTree("bin/digits"), "--backend", backend, "--epochs", "2",
                                 "--journal", directory.File("journal." + std::to_string(rank))},
        WorkerVariables(directory.path(), rank, 2),
        directory.File("output." + std::to_string(rank)));
  }
  for (Process& rank : ranks) {
    EXPECT_EQ(rank.Wait(), 0) << rank.Output();
  }
  EXPECT_THAT(ranks[0].Output(), HasSubstr("2 workers over " + backend));
  return LossesOf(ReadFile(directory.File("journal.0")));
}

TEST(DigitsTest, LearnOverSharedMemoryExactlyWhatTheyLearnOverGloo) {
  const std::vector<std::string> losses = LossesOfDigits("shm");
  EXPECT_GT(losses.size(), 20U);
  EXPECT_EQ(losses, LossesOfDigits("gloo"));
}

}  // namespace
}  // namespace ddprun::testing
