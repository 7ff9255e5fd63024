// One worker at a time: how it is started, what it is given, how its end and its stops are
// reported.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/machine/host_probe.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::TempDir;

// A file of this test; removed with it.
class TestFile {
 public:
  TestFile(const std::string& name, const std::string& text, mode_t mode)
      : path_(absl::StrCat(TempDir(), "/", name, ".", getpid())) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  ~TestFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(KeeperWorkerTest, TellsExitCodes) {
  KeeperUnderTest keeper;
  const std::vector<int> codes = {0, 1, 77, 255};
  for (uint32_t rank = 0; rank < codes.size(); ++rank) {
    keeper.Spawn(1, rank, Misbehave({"exit", absl::StrCat(codes[rank])}));
  }
  for (uint32_t rank = 0; rank < codes.size(); ++rank) {
    const WorkerExit exit = keeper.RunUntilExited(1, rank);
    EXPECT_EQ(exit.exit_code, codes[rank]);
    EXPECT_EQ(exit.signal, 0);
    EXPECT_EQ(exit.pid, (keeper.started[{1, rank}]));
    EXPECT_EQ(exit.swept, 0U);
  }
}

TEST(KeeperWorkerTest, TellsEverySignalThatKills) {
  KeeperUnderTest keeper;
  const std::vector<int> signals = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGABRT, SIGBUS, SIGFPE,
                                    SIGKILL, SIGUSR1, SIGSEGV, SIGPIPE, SIGTERM, SIGXCPU};
  for (uint32_t rank = 0; rank < signals.size(); ++rank) {
    keeper.Spawn(1, rank, Misbehave({"signal", absl::StrCat(signals[rank])}));
  }
  for (uint32_t rank = 0; rank < signals.size(); ++rank) {
    const WorkerExit exit = keeper.RunUntilExited(1, rank);
    EXPECT_EQ(exit.signal, signals[rank]);
    EXPECT_EQ(exit.exit_code, 0);
  }
}

TEST(KeeperWorkerTest, StartsWithAnOwnSessionAndACleanState) {
  // What the keeper must not hand on.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  KeeperUnderTest keeper;
  sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_DFL);

  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"report"}));
  keeper.RunUntilExited(1, 0);
  EXPECT_EQ(out.Rest(),
            "leads_session=1\n"
            "blocked=0000000000000000\n"
            "ignored=0000000000000000\n"
            "descriptors=3\n"
            "death_signal=9\n");
}

// What misbehave's mode cpus prints when all of it may run on these.
std::string RunningOn(const launcher::CpuSet& cpus) {
  std::string list;
  for (const uint32_t cpu : cpus) absl::StrAppend(&list, " ", cpu);
  return absl::StrCat("worker", list, "\nthread", list, "\nchild", list, "\n");
}

TEST(KeeperWorkerTest, BindsAWorkerWithAllThatItStarts) {
  const launcher::CpuSet all = launcher::AllowedCpus();
  if (all.size() < 2) GTEST_SKIP() << "there is one CPU here: nothing to choose from";
  KeeperUnderTest keeper;
  uint32_t rank = 0;
  for (const uint32_t cpu : {*all.begin(), *all.rbegin()}) {
    auto pipe = *MakePipe();
    ASSERT_TRUE(keeper
                    .Spawn({.generation = 1,
                            .local_rank = rank,
                            .argv = Misbehave({"cpus"}),
                            .stdout_fd = std::move(pipe.second),
                            .cpus = {cpu}})
                    .ok());
    EXPECT_EQ(keeper.RunUntilExited(1, rank++).exit_code, 0);
    EXPECT_EQ(PipeReader(std::move(pipe.first)).Rest(), RunningOn({cpu}));
  }
  // Negative control; and the keeper is where it was.
  PipeReader& free = keeper.Spawn(1, rank, Misbehave({"cpus"}));
  keeper.RunUntilExited(1, rank);
  EXPECT_EQ(free.Rest(), RunningOn(all));
}

TEST(KeeperWorkerTest, SaysThatCpusAreGone) {
  KeeperUnderTest keeper;
  for (const auto& [cpu, words] :
       {std::pair(16'000U, "start ddprun anew"), std::pair(1U << 31, "read the command")}) {
    ASSERT_TRUE(
        keeper.Spawn({.generation = 3, .local_rank = cpu, .argv = {"/bin/true"}, .cpus = {cpu}})
            .ok());
    ASSERT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({3, cpu}); }));
    const std::string message((keeper.start_failed[{3, cpu}].message()));
    EXPECT_TRUE(absl::StrContains(message, "'/bin/true'")) << message;
    EXPECT_TRUE(absl::StrContains(message, "(errno 22, EINVAL)")) << message;
    EXPECT_TRUE(absl::StrContains(message, words)) << message;
  }
  EXPECT_TRUE(keeper.started.empty());
}

TEST(KeeperWorkerTest, PassesALargeCommandAndEnvironment) {
  setenv("REMOVED", "still here", 1);
  setenv("CHANGED", "before", 1);
  KeeperUnderTest keeper;
  unsetenv("REMOVED");
  unsetenv("CHANGED");
  auto pipe = *MakePipe();
  launcher::SpawnRequest request{.generation = 1,
                                 .argv = Misbehave({"count", std::string(100'000, 'x')}),
                                 .environment = {"CHANGED=after"},
                                 .unset = {"REMOVED"},
                                 .stdout_fd = std::move(pipe.second)};
  for (int i = 0; i < 2000; ++i) {
    request.environment.push_back(absl::StrCat("BIG_", i, "=", std::string(100, 'v')));
  }
  ASSERT_TRUE(keeper.Spawn(std::move(request)).ok());
  EXPECT_EQ(keeper.RunUntilExited(1, 0).exit_code, 0);
  EXPECT_EQ(PipeReader(std::move(pipe.first)).Rest(),
            "variables=2000\nargument_bytes=100000\nchanged=after\nremoved=<unset>\n");
}

TEST(KeeperWorkerTest, RefusesACommandThatNoKernelTakes) {
  KeeperUnderTest keeper;
  const absl::Status status = keeper.Spawn({.argv = {"/bin/true", std::string(9 << 20, 'x')}});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::IsInvalidArgument(keeper.Spawn({.argv = {}})));

  // A smaller one reaches the kernel; the kernel's error comes back.
  keeper.Spawn(1, 0, {"/bin/true", std::string(1 << 20, 'x')});
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({1, 0}); }));
  EXPECT_TRUE(absl::StrContains((keeper.start_failed[{1, 0}].message()), "E2BIG"))
      << keeper.start_failed[{1, 0}];
}

class StartFailureTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(StartFailureTest, NamesProgramErrnoAndAdvice) {
  const auto& [program, error, advice] = GetParam();
  const TestFile no_permission("no_permission", "#!/bin/sh\n", 0644);
  const TestFile no_format("no_format", "echo 1\n", 0755);
  const TestFile no_interpreter("no_interpreter", "#!/no/such/shell\n", 0755);
  const std::string path = absl::StartsWith(program, "no_")
                               ? absl::StrCat(TempDir(), "/", program, ".", getpid())
                               : program;
  KeeperUnderTest keeper;
  keeper.Spawn(3, 1, {path});
  ASSERT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({3, 1}); }));
  const std::string message((keeper.start_failed[{3, 1}].message()));
  EXPECT_TRUE(absl::StrContains(message, absl::StrCat("exec '", path, "'"))) << message;
  EXPECT_TRUE(absl::StrContains(message, error)) << message;
  EXPECT_TRUE(absl::StrContains(message, advice)) << message;
  // The program never ran, so nothing else is reported about it.
  EXPECT_EQ(keeper.Sweep(3), 0U);
  EXPECT_TRUE(keeper.started.empty());
  EXPECT_TRUE(keeper.exited.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, StartFailureTest,
    ::testing::Values(std::tuple("/no/such/program", "(errno 2, ENOENT)", "check the path"),
                      std::tuple("no-such-program", "(errno 2, ENOENT)", "no directory of PATH"),
                      std::tuple("no_interpreter", "(errno 2, ENOENT)", "interpreter"),
                      std::tuple("no_permission", "(errno 13, EACCES)", "chmod +x"),
                      std::tuple("no_format", "(errno 8, ENOEXEC)", "#!"),
                      std::tuple("/etc/passwd/x", "(errno 20, ENOTDIR)", ""),
                      std::tuple("/tmp", "(errno 13, EACCES)", "")));

TEST(KeeperWorkerTest, LooksUpTheProgramInTheWorkersPath) {
  KeeperUnderTest keeper;
  const std::string directory = HelperPath("").substr(0, HelperPath("").size() - 1);
  ASSERT_TRUE(keeper
                  .Spawn({.generation = 1,
                          .argv = {"misbehave", "exit", "5"},
                          .environment = {absl::StrCat("PATH=/no/such:", directory)}})
                  .ok());
  EXPECT_EQ(keeper.RunUntilExited(1, 0).exit_code, 5);
}

TEST(KeeperWorkerTest, AWorkerThatClosesItsOutputLivesOn) {
  KeeperUnderTest keeper;
  auto out = *MakePipe();
  auto err = *MakePipe();
  ASSERT_TRUE(keeper
                  .Spawn({.generation = 1,
                          .argv = Misbehave({"close-stdout"}),
                          .stdout_fd = std::move(out.second),
                          .stderr_fd = std::move(err.second)})
                  .ok());
  EXPECT_TRUE(PipeReader(std::move(out.first)).EndsWithin());
  EXPECT_EQ(PipeReader(std::move(err.first)).Line(), "ready");
  EXPECT_NE(ProcessState(keeper.RunUntilStarted(1, 0)), 'Z');
  EXPECT_TRUE(keeper.exited.empty());
}

TEST(KeeperWorkerTest, TellsAStopAndContinuesWhatItTerminates) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"stop"}));
  ASSERT_TRUE(keeper.RunUntil([&] { return keeper.stopped.contains({1, 0}); }));
  EXPECT_EQ((keeper.stopped[{1, 0}]), SIGSTOP);

  // Negative control: a bare TERM waits for ever at a stopped process.
  const pid_t pid = keeper.started[{1, 0}];
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  EXPECT_EQ(ProcessState(pid), 'T');

  keeper.client->Signal(1, SIGTERM, {});
  EXPECT_EQ(keeper.RunUntilExited(1, 0).signal, SIGTERM);
}

TEST(KeeperWorkerTest, SignalsOnlyTheGenerationAndItsWholeGroups) {
  KeeperUnderTest keeper;
  PipeReader& first = keeper.Spawn(1, 0, Misbehave({"ignore-term"}));
  PipeReader& second = keeper.Spawn(2, 0, Misbehave({"live"}));
  PipeReader& tree = keeper.Spawn(1, 1, Misbehave({"fork-tree", "3"}));
  first.ReadyPid();
  second.ReadyPid();
  tree.ReadyPid();
  keeper.client->Signal(1, SIGTERM, {});
  EXPECT_EQ(first.Line(), "TERM");
  keeper.client->Signal(1, SIGKILL, {});
  EXPECT_EQ(keeper.RunUntilExited(1, 0).signal, SIGKILL);
  EXPECT_TRUE(tree.EndsWithin());
  EXPECT_NE(ProcessState(keeper.RunUntilStarted(2, 0)), 'Z');
  EXPECT_FALSE(keeper.exited.contains({2, 0}));
}

}  // namespace
}  // namespace ddprun::testing
