#include "worker/env/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<WorkerEnvironment> Read(const Variables& variables) {
  return ReadWorkerEnvironment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// What ddprun sets for rank 3 of 4 on the second of two nodes.
Variables Sound() {
  return {{"RANK", "3"},
          {"LOCAL_RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"MASTER_ADDR", "host0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_MAX_RESTARTS", "5"},
          {"TORCHELASTIC_RUN_ID", "job7"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {"DDPRUN_GENERATION", "6"},
          {"DDPRUN_AGENT", "/run/agent.sock"}};
}

TEST(WorkerEnvironmentTest, ReadsTheWholeContract) {
  const absl::StatusOr<WorkerEnvironment> environment = Read(Sound());
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(environment->world_size, 4);
  EXPECT_EQ(environment->local_world_size, 2);
  EXPECT_EQ(environment->group_rank, 1);
  EXPECT_EQ(environment->master_addr, "host0");
  EXPECT_EQ(environment->master_port, 29500);
  EXPECT_EQ(environment->restart_count, 2);
  EXPECT_EQ(environment->max_restarts, 5);
  EXPECT_EQ(environment->run_id, "job7");
  EXPECT_EQ(environment->error_file, "/tmp/error.json");
  EXPECT_FALSE(environment->launcher_serves_store);
  EXPECT_EQ(environment->generation, 6);
  EXPECT_EQ(environment->agent_socket, "/run/agent.sock");
  EXPECT_TRUE(environment->started_by_ddprun());
}

TEST(WorkerEnvironmentTest, UnderTorchrunThereIsNoAgent) {
  Variables variables = Sound();
  variables.erase("DDPRUN_GENERATION");
  variables.erase("DDPRUN_AGENT");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const absl::StatusOr<WorkerEnvironment> environment = Read(variables);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_FALSE(environment->started_by_ddprun());
  EXPECT_EQ(environment->generation, 0);
  EXPECT_TRUE(environment->launcher_serves_store);
}

TEST(WorkerEnvironmentTest, WithoutAnyVariableTheWorldIsOneWorker) {
  const absl::StatusOr<WorkerEnvironment> environment = Read({});
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 0);
  EXPECT_EQ(environment->world_size, 1);
  EXPECT_EQ(environment->master_port, 0);
  EXPECT_EQ(environment->run_id, "none");
}

TEST(WorkerEnvironmentTest, TheAgentMayBeAGrpcAddress) {
  Variables variables = Sound();
  variables["DDPRUN_AGENT"] = "unix:/run/agent.sock";
  EXPECT_EQ(Read(variables)->agent_socket, "/run/agent.sock");
}

struct BadCase {
  const char* name;
  std::optional<std::string> value;  // none = unset
  std::vector<std::string> texts;    // all appear in the message
};

class BadEnvironmentTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadEnvironmentTest, IsRefusedWithNameAndValue) {
  Variables variables = Sound();
  if (GetParam().value.has_value()) {
    variables[GetParam().name] = *GetParam().value;
  } else {
    variables.erase(GetParam().name);
  }
  const absl::Status status = Read(variables).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& text : GetParam().texts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadEnvironmentTest,
    ::testing::Values(
        BadCase{"RANK", std::nullopt, {"RANK", "not set"}}, BadCase{"RANK", "", {"RANK", "empty"}},
        BadCase{"RANK", "x", {"RANK", "'x'"}}, BadCase{"RANK", "-1", {"RANK", "'-1'"}},
        BadCase{"RANK", "4", {"RANK", "4", "WORLD_SIZE"}},
        BadCase{"RANK", "99999999999", {"RANK", "'99999999999'"}},
        BadCase{"WORLD_SIZE", std::nullopt, {"WORLD_SIZE", "not set"}},
        BadCase{"WORLD_SIZE", "0", {"RANK", "WORLD_SIZE = 0"}},
        BadCase{"WORLD_SIZE", "4.0", {"WORLD_SIZE", "'4.0'"}},
        BadCase{"LOCAL_RANK", std::nullopt, {"LOCAL_RANK", "not set"}},
        BadCase{"LOCAL_RANK", "2", {"LOCAL_RANK", "2", "LOCAL_WORLD_SIZE"}},
        BadCase{"LOCAL_WORLD_SIZE", std::nullopt, {"LOCAL_WORLD_SIZE", "not set"}},
        BadCase{"LOCAL_WORLD_SIZE", "5", {"LOCAL_WORLD_SIZE", "5", "WORLD_SIZE"}},
        BadCase{"GROUP_RANK", "one", {"GROUP_RANK", "'one'"}},
        BadCase{"MASTER_ADDR", std::nullopt, {"MASTER_ADDR", "not set"}},
        BadCase{"MASTER_PORT", std::nullopt, {"MASTER_PORT", "not set"}},
        BadCase{"MASTER_PORT", "0", {"MASTER_PORT", "0"}},
        BadCase{"MASTER_PORT", "65536", {"MASTER_PORT", "65536"}},
        BadCase{"TORCHELASTIC_RESTART_COUNT", "many", {"TORCHELASTIC_RESTART_COUNT", "'many'"}},
        BadCase{"TORCHELASTIC_MAX_RESTARTS", "-3", {"TORCHELASTIC_MAX_RESTARTS", "'-3'"}},
        BadCase{"DDPRUN_GENERATION", "6x", {"DDPRUN_GENERATION", "'6x'"}},
        BadCase{"DDPRUN_GENERATION", std::nullopt, {"DDPRUN_AGENT", "DDPRUN_GENERATION"}},
        BadCase{"DDPRUN_GENERATION", "0", {"DDPRUN_AGENT", "DDPRUN_GENERATION"}}));

}  // namespace
}  // namespace ddprun::worker
