// The worker's environment, as torchrun makes it: checks 18, 39-43, 47, 75 of tests/contract.
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;

using Variables = std::map<std::string, std::string>;

EnvironmentLookup LookupIn(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// Node 1 of two: two workers of role b on node 0, this one of role a (check 47 with more workers).
LaunchPlan SecondNode() {
  LaunchPlan plan;
  plan.job.run_id = "job7";
  plan.job.max_restarts = 3;
  plan.role = "a";
  plan.worker_count = 2;
  return plan;
}

rendezvous::Assignment SecondAssignment() {
  return {.generation = rendezvous::Generation(5),
          .restart_count = 1,
          .world_size = 4,
          .group_rank = 1,
          .group_world_size = 2,
          .base_rank = 2,
          .base_role_rank = 0,
          .role_world_size = 2,
          .master_addr = "host0",
          .master_port = 41000};
}

Variables EnvironmentOf(uint32_t local_rank, const Variables& inherited,
                        const LaunchPlan& plan = SecondNode()) {
  Variables result;
  for (const std::string& entry :
       WorkerEnvironment(plan, SecondAssignment(), local_rank, LookupIn(inherited),
                         {.agent_socket = "/run/agent",
                         .error_file = "/logs/1/error.json",
                         .timer_file = "",
                         .progress_page = "/proc/7/fd/3"})) {
    const size_t equals = entry.find('=');
    EXPECT_TRUE(result.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second)
        << "twice: " << entry;
  }
  return result;
}

TEST(WorkerEnvironment, IsTorchrunsCompleteList) {  // 39
  const Variables expected = {
      {"RANK", "3"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "a"},
      {"ROLE_RANK", "1"},
      {"ROLE_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "host0"},
      {"MASTER_PORT", "41000"},
      {"TORCHELASTIC_RESTART_COUNT", "1"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RUN_ID", "job7"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", "/logs/1/error.json"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "1"},
      {"DDPRUN_GENERATION", "5"},
      {"DDPRUN_AGENT", "/run/agent"},
      {"DDPRUN_PROGRESS", "/proc/7/fd/3"},
  };
  EXPECT_EQ(EnvironmentOf(1, {}), expected);
}

TEST(WorkerEnvironment, WorkerRankZeroHostsTheStoreOnRequest) {  // 52
  LaunchPlan plan = SecondNode();
  plan.agent_store = false;
  EXPECT_EQ(EnvironmentOf(0, {}, plan).at("TORCHELASTIC_USE_AGENT_STORE"), "False");
}

TEST(WorkerEnvironment, RanksCountFromTheBase) {  // 47
  const Variables first = EnvironmentOf(0, {});
  EXPECT_EQ(first.at("RANK"), "2");
  EXPECT_EQ(first.at("ROLE_RANK"), "0");
  EXPECT_EQ(first.at("LOCAL_RANK"), "0");
}

TEST(WorkerEnvironment, OmpThreads) {  // 42
  EXPECT_EQ(EnvironmentOf(0, {{"OMP_NUM_THREADS", "5"}}).count("OMP_NUM_THREADS"), 0U);
  LaunchPlan single = SecondNode();
  single.worker_count = 1;
  EXPECT_EQ(EnvironmentOf(0, {}, single).count("OMP_NUM_THREADS"), 0U);
  EXPECT_FALSE(DefaultsOmpThreads(single, LookupIn({})));
  EXPECT_FALSE(DefaultsOmpThreads(SecondNode(), LookupIn({{"OMP_NUM_THREADS", "5"}})));
  EXPECT_TRUE(DefaultsOmpThreads(SecondNode(), LookupIn({})));
}

TEST(WorkerEnvironment, OmpThreadsOfBoundWorkers) {
  LaunchPlan plan = SecondNode();
  plan.omp_threads = 3;
  plan.worker_omp_threads = {5, 4};
  EXPECT_EQ(EnvironmentOf(0, {}, plan).at("OMP_NUM_THREADS"), "5");
  EXPECT_EQ(EnvironmentOf(1, {}, plan).at("OMP_NUM_THREADS"), "4");
}

TEST(WorkerEnvironment, OmpThreadsOfTheOption) {
  LaunchPlan plan = SecondNode();
  plan.omp_threads = 3;
  EXPECT_EQ(EnvironmentOf(0, {}, plan).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(EnvironmentOf(0, {{"OMP_NUM_THREADS", "5"}}, plan).at("OMP_NUM_THREADS"), "3");
  EXPECT_FALSE(DefaultsOmpThreads(plan, LookupIn({})));
}

TEST(WorkerEnvironment, VirtualLocalRank) {  // 44, 45
  LaunchPlan plan = SecondNode();
  plan.devices.virtual_local_rank = true;
  const Variables second = EnvironmentOf(1, {}, plan);
  EXPECT_EQ(second.at("LOCAL_RANK"), "0");
  EXPECT_EQ(second.at("RANK"), "3");
  EXPECT_EQ(second.at("CUDA_VISIBLE_DEVICES"), "1");
  plan.devices.visible = {"5", "GPU-7"};
  EXPECT_EQ(EnvironmentOf(0, {}, plan).at("CUDA_VISIBLE_DEVICES"), "5");
  const Variables plain = EnvironmentOf(1, {}, plan);
  EXPECT_EQ(plain.at("CUDA_VISIBLE_DEVICES"), "GPU-7");
  EXPECT_EQ(plain.count("HIP_VISIBLE_DEVICES"), 0U);
  const Variables hip = EnvironmentOf(1, {{"HIP_VISIBLE_DEVICES", "5,GPU-7"}}, plan);
  EXPECT_EQ(hip.at("HIP_VISIBLE_DEVICES"), "GPU-7");
}

TEST(WorkerEnvironment, ChosenDevices) {
  LaunchPlan plan = SecondNode();
  plan.devices.visible = {"1", "3"};
  const Variables second = EnvironmentOf(1, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}, plan);
  EXPECT_EQ(second.at("LOCAL_RANK"), "1");
  EXPECT_EQ(second.at("CUDA_VISIBLE_DEVICES"), "1,3");
}

TEST(WorkerEnvironment, IdenticalWorkersHaveOneRole) {  // 49
  const Variables worker = EnvironmentOf(1, {{"TORCH_ELASTIC_WORKER_IDENTICAL", "1"}});
  EXPECT_EQ(worker.at("ROLE_RANK"), "3");
  EXPECT_EQ(worker.at("ROLE_WORLD_SIZE"), "4");
  EXPECT_EQ(EnvironmentOf(1, {{"TORCH_ELASTIC_WORKER_IDENTICAL", "0"}}).at("ROLE_RANK"), "1");
}

TEST(WorkerEnvironment, ExtraVariablesYieldToAllOthers) {
  LaunchPlan plan = SecondNode();
  plan.extra_environment = {{"EXTRA", "1"}, {"RANK", "77"}, {"MINE", "file"}};
  const Variables worker = EnvironmentOf(1, {{"MINE", "user"}}, plan);
  EXPECT_EQ(worker.at("EXTRA"), "1");
  EXPECT_EQ(worker.at("RANK"), "3");
  EXPECT_EQ(worker.count("MINE"), 0U);
}

TEST(WorkerEnvironment, DeepSpeedsVariablesForWhoAsks) {
  LaunchPlan plan = SecondNode();
  EXPECT_EQ(EnvironmentOf(0, {}, plan).count("CROSS_RANK"), 0U);
  plan.deepspeed = true;
  const Variables worker = EnvironmentOf(0, {}, plan);
  EXPECT_EQ(worker.at("CROSS_RANK"), worker.at("GROUP_RANK"));
  EXPECT_EQ(worker.at("CROSS_SIZE"), worker.at("GROUP_WORLD_SIZE"));
  EXPECT_EQ(worker.at("LOCAL_SIZE"), worker.at("LOCAL_WORLD_SIZE"));
}

TEST(WorkerEnvironment, SignalsAsGiven) {
  LaunchPlan plan = SecondNode();
  plan.signals.text = "SIGUSR1";
  EXPECT_EQ(EnvironmentOf(0, {}, plan).at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGUSR1");
}

TEST(WorkerEnvironment, NcclErrorHandling) {  // 43
  EXPECT_EQ(EnvironmentOf(0, {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}})
                .at("TORCH_NCCL_ASYNC_ERROR_HANDLING"),
            "3");
}

TEST(WorkerEnvironment, ErrorFileMayBeEmpty) {  // 78
  const std::vector<std::string> environment =
      WorkerEnvironment(SecondNode(), SecondAssignment(), 0, LookupIn({}), {});
  EXPECT_THAT(environment, testing::Contains("TORCHELASTIC_ERROR_FILE="));
}

TEST(WorkerArguments, Macros) {  // 18
  LaunchPlan plan;
  plan.argv = {"/bin/$local_rank", "-u", "${local_rank}", "$local_rank",    "${x}",        "$$y",
               "$local_rank2",     "$",  "${local_rank",  "a$local_rank.b", "$$local_rank"};
  EXPECT_THAT(WorkerArguments(plan, 7),
              ElementsAre("/bin/$local_rank", "-u", "7", "7", "${x}", "$y", "$local_rank2", "$",
                          "${local_rank", "a7.b", "$local_rank"));
}

TEST(ConsolePrefix, Templates) {  // 74, 75
  LaunchPlan plan = SecondNode();
  EXPECT_EQ(ConsolePrefix(plan, "host1", SecondAssignment(), {1}), "[a1]:");
  plan.output.prefix_template =
      "<${role_name}|${rank}|${local_rank}|${foo}|${group_rank}|${host}> ";
  EXPECT_EQ(ConsolePrefix(plan, "host1", SecondAssignment(), {1}), "<a|3|1|${foo}|1|host1> ");
  plan.output.prefix_template = "${hostname}:${rank} ";  // the newest torchrun's
  EXPECT_EQ(ConsolePrefix(plan, "host1.domain", SecondAssignment(), {1}), "host1:3 ");
}

// Whatever of two workers or generations differs is named, so that no import ahead may read it.
TEST(CommonEnvironment, IsWhatAllWorkersOfAllGenerationsHave) {
  LaunchPlan plan = SecondNode();
  plan.devices.virtual_local_rank = true;
  plan.deepspeed = true;
  const std::vector<std::string> varying = VaryingVariables(plan);
  const std::vector<std::string> common = CommonEnvironment(plan, LookupIn({}));
  const rendezvous::Assignment first = {.generation = rendezvous::Generation(1),
                                        .world_size = 2,
                                        .group_world_size = 1,
                                        .role_world_size = 2,
                                        .master_addr = "host1",
                                        .master_port = 1};
  const std::vector<std::string> one = WorkerEnvironment(
      plan, first, 0, LookupIn({}), {"/run/agent", "/logs/0/error.json", "/timer", "/proc/7/fd/3"});
  const std::vector<std::string> other = WorkerEnvironment(
      plan, SecondAssignment(), 1, LookupIn({}), {"/run/a", "/logs/1/error.json", "/t", "/fd/4"});
  for (const std::string& variable : one) {
    const std::string name = variable.substr(0, variable.find('='));
    const bool varies = std::find(varying.begin(), varying.end(), name) != varying.end();
    const bool same = std::find(other.begin(), other.end(), variable) != other.end();
    EXPECT_TRUE(same || varies) << variable;
    EXPECT_EQ(!varies, std::find(common.begin(), common.end(), variable) != common.end())
        << variable;
  }
}

TEST(UserFolder, FollowsXdg) {
  const auto folder = [](const std::map<std::string, std::string>& variables) {
    return UserFolder(LookupIn(variables), "XDG_STATE_HOME", ".local/state");
  };
  EXPECT_EQ("/s", folder({{"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}}));
  EXPECT_EQ("/h/.local/state", folder({{"HOME", "/h"}}));
  EXPECT_EQ("/h/.local/state", folder({{"XDG_STATE_HOME", "s"}, {"HOME", "/h"}}));
  EXPECT_EQ("", folder({{"XDG_STATE_HOME", ""}, {"HOME", "home"}}));
  EXPECT_EQ("", folder({}));
}

}  // namespace
}  // namespace ddprun::launcher
