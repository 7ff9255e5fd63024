#include "launcher/os/death_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeathProbeTest : public ::testing::Test {
 protected:
  std::vector<std::string> Facts(const WorkerEnd& end) { return probe().Facts(end, ""); }
  DeathProbe& probe() {
    if (!probe_.has_value()) probe_.emplace(tree_.path());
    return *probe_;
  }
  testing::TempTree tree_;
  std::optional<DeathProbe> probe_;
};

TEST_F(DeathProbeTest, AMachineThatTellsNothingGivesNoFacts) {
  probe().Begin();
  EXPECT_THAT(Facts({{.signal = SIGKILL}}), IsEmpty());
}

TEST_F(DeathProbeTest, CountsKillsOfTheCgroupSinceTheGenerationBegan) {
  tree_.Write("proc/self/cgroup", "0::/job/step\n");
  tree_.Write("sys/fs/cgroup/job/step/memory.events", "oom 3\noom_kill 2\n");
  tree_.Write("sys/fs/cgroup/job/step/memory.max", "1048576\n");
  tree_.Write("sys/fs/cgroup/job/step/memory.peak", "1048576\n");
  probe().Begin();
  EXPECT_THAT(Facts({{.signal = SIGKILL}}), ElementsAre(HasSubstr("not the out-of-memory killer")));
  tree_.Write("sys/fs/cgroup/job/step/memory.events", "oom 4\noom_kill 3\n");
  EXPECT_THAT(Facts({{.signal = SIGKILL}}),
              ElementsAre("memory: the kernel killed 1 process of the cgroup "
                          "/sys/fs/cgroup/job/step for lack of memory in this generation; the "
                          "cgroup had at most 1.0 MiB of 1.0 MiB"));
}

TEST_F(DeathProbeTest, TheOldCgroupsTellTheSame) {
  tree_.Write("proc/self/cgroup", "5:devices:/\n4:memory:/of/the/host\n0::/\n");
  // Only the root is seen in the container.
  tree_.Write("sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 0\n");
  tree_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree_.Write("sys/fs/cgroup/memory/memory.max_usage_in_bytes", "2048\n");
  probe().Begin();
  tree_.Write("sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 5\n");
  EXPECT_THAT(Facts({{.signal = SIGKILL}}),
              ElementsAre(AllOf(HasSubstr("killed 5 processes"), HasSubstr("had at most 2.0 KiB"),
                                Not(HasSubstr(" of 8")))));
}

TEST_F(DeathProbeTest, TheMachinesCountIsTheNextBest) {
  tree_.Write("proc/vmstat", "nr_free 1\noom_kill 7\n");
  probe().Begin();
  tree_.Write("proc/vmstat", "nr_free 1\noom_kill 8\n");
  EXPECT_THAT(Facts({{.signal = SIGKILL}}), ElementsAre(HasSubstr("1 process of this machine")));
}

TEST_F(DeathProbeTest, FindsTheCore) {
  const WorkerEnd end{{.pid = 4242, .signal = SIGSEGV, .core_dumped = true}};
  tree_.Write("proc/sys/kernel/core_pattern", absl::StrCat(tree_.path(), "/core.%p.%t\n"));
  EXPECT_THAT(Facts(end), ElementsAre(HasSubstr("core: not found at ")));
  const std::string core = tree_.Write("core.4242.1700000000", "ELF");
  EXPECT_THAT(Facts(end), ElementsAre(absl::StrCat("core: ", core)));
  tree_.Write("proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n");
  EXPECT_THAT(Facts(end), ElementsAre("core: given to /usr/lib/systemd/systemd-coredump "
                                      "(`coredumpctl info 4242`)"));
}

TEST_F(DeathProbeTest, ThisMachineCanBeAsked) {
  DeathProbe here;
  here.Begin();
  for (const std::string& fact : here.Facts({{.signal = SIGKILL}}, ""))
    EXPECT_THAT(fact, HasSubstr(": "));
}

class FlightRecorderTest : public ::testing::Test {
 protected:
  testing::TempTree tree_;
};

TEST_F(FlightRecorderTest, LooksWhereTorchWrites) {
  std::map<std::string, std::string> variables = {{"HOME", "/users/u"}, {"XDG_CACHE_HOME", ""}};
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  EXPECT_THAT(FlightRecorderPrefixes(environment),
              ElementsAre("/users/u/.cache/torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_"));
  variables["XDG_CACHE_HOME"] = "/cache";
  EXPECT_EQ(FlightRecorderPrefixes(environment).front(), "/cache/torch/comm_lib_trace_rank_");
  variables["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = "/dumps/old_";
  EXPECT_THAT(FlightRecorderPrefixes(environment), ElementsAre("/dumps/old_"));
  variables["TORCH_FR_DUMP_TEMP_FILE"] = "/dumps/new_";
  EXPECT_THAT(FlightRecorderPrefixes(environment), ElementsAre("/dumps/new_"));
}

TEST_F(FlightRecorderTest, CopiesDumpsOfThisGenerationOnly) {
  const std::string dump = tree_.Write("trace_7", "pickle");
  const std::vector<std::string> prefixes = {"/no/such_", tree_.path() + "/trace_"};
  const auto collect = [&](uint32_t rank, absl::Time since, const std::string& folder) {
    return CollectFlightRecorderDump(prefixes, rank, since, folder);
  };
  const absl::Time before = absl::UnixEpoch();
  EXPECT_EQ(collect(8, before, tree_.path()), "");
  EXPECT_EQ(collect(7, absl::InfiniteFuture(), tree_.path()), "");
  EXPECT_EQ(collect(7, before, tree_.path()), tree_.path() + "/flight_recorder_rank_7");
  EXPECT_EQ(tree_.Read("flight_recorder_rank_7"), "pickle");
  EXPECT_EQ(collect(7, before, ""), dump);
  EXPECT_EQ(collect(7, before, tree_.path() + "/missing"), dump);
}

}  // namespace
}  // namespace ddprun::launcher
