// Groups of some of the ranks, over each backend for CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

class GroupTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr uint32_t kRanks = 4;

  // What each rank printed. Ranks 2 and 3 are another node's; shared memory wants one host.
  std::vector<std::string> Run() const {
    const auto agent =
        FakeAgent::Start({.socket_path = directory_.File("agent"), .world_size = kRanks});
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::map<std::string, std::string> variables =
          WorkerVariables(directory_.path(), rank, kRanks);
      variables["DDPRUN_BACKEND"] = GetParam();
      if (GetParam() != "shm") variables["GROUP_RANK"] = absl::StrCat(rank / 2);
      ranks.emplace_back(std::vector<std::string>{InBuildTree("bin/group_probe")}, variables,
                         directory_.File(absl::StrCat("output.", rank)));
    }
    std::vector<std::string> outputs;
    for (Process& process : ranks) {
      EXPECT_EQ(process.Wait(), 0) << process.Output();
      outputs.push_back(process.Output());
    }
    return outputs;
  }

  TemporaryDirectory directory_;
};

// Rank r gives 1 << r.
TEST_P(GroupTest, HaveCollectivesOfTheirOwn) {
  const std::vector<std::string> said = Run();
  const std::vector<std::vector<std::string>> expected = {
      {"row 0/2 3 2 1 2\n", "column 0/2 5 4 1 4\n", "reversed 3/4 15 1 8 4 2 1\n"},
      {"row 1/2 3 2 1 2\n", "column 0/2 10 8 2 8\n", "reversed 2/4 15 1 8 4 2 1\n"},
      {"row 0/2 12 8 4 8\n", "column 1/2 5 4 1 4\n", "reversed 1/4 15 1 8 4 2 1\n"},
      {"row 1/2 12 8 4 8\n", "column 1/2 10 8 2 8\n", "reversed 0/4 15 1 8 4 2 1\n"}};
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (const std::string& line : expected[rank]) EXPECT_THAT(said[rank], HasSubstr(line));
    const std::string row = expected[rank][0];
    EXPECT_THAT(said[rank], HasSubstr("row again" + row.substr(3)));
    EXPECT_THAT(said[rank], HasSubstr("all 15\n"));
    const uint32_t node = GetParam() == "shm" ? 0 : rank / 2;
    EXPECT_THAT(said[rank], HasSubstr(absl::StrCat("place ", node, " ", rank, " 4\n")));
  }
  EXPECT_THAT(said[2], HasSubstr("alone 0/1 4 4 4\n"));
  for (const char* refusal :
       {"the group of ranks [] is made by rank 1, which isn't in it: only its own ranks make it",
        "the group of ranks [1, 1] has a rank twice",
        "the group of ranks [1, 4] has rank 4, and there are ranks 0 to 3",
        "the group of ranks [2] is made by rank 1, which isn't in it"}) {
    EXPECT_THAT(said[1], HasSubstr(absl::StrCat("refused INVALID_ARGUMENT: ", refusal)));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GroupTest, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace ddprun::testing
