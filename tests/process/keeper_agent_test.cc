// The end of the agent, of the keeper, and of the contact between them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

// What the tree of a killed agent may take to go. The usual time is printed.
const absl::Duration kGoneLimit = absl::Seconds(1) * Slow();

// A keeper_host with its workers, seen from outside. All of it comes to us when its parents die.
class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override { EXPECT_TRUE(ReapAllChildren().empty()) << "something lives on"; }

  // Starts workers that print `ready_count` lines "ready" together, and waits for these.
  void StartAgent(absl::Duration isolation, std::vector<std::string> arguments, int ready_count,
                  int extra = -1) {
    std::vector<std::string> argv = {HelperPath("keeper_host"),
                                     absl::StrCat(absl::ToInt64Milliseconds(isolation))};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    agent_ = StartProgram(argv, extra);
    const std::string line = agent_.out.Line().value_or("");
    ASSERT_TRUE(absl::StartsWith(line, "keeper ")) << line;
    ASSERT_TRUE(absl::SimpleAtoi(line.substr(7), &keeper_));
    for (int i = 0; i < ready_count; ++i) agent_.out.ReadyPid();
  }

  // How long until agent, keeper and workers have all closed stdout.
  void ExpectAllGone(Instant since, absl::Duration limit) {
    EXPECT_TRUE(agent_.out.EndsWithin(limit));
    std::cout << "gone after " << absl::FormatDuration(MonotonicNow() - since) << "\n";
  }

  Program agent_;
  pid_t keeper_ = 0;
};

const std::vector<std::string> kWorkers = {"ignore-term", "daemon-parent", "chain 3", "stop"};
constexpr int kWorkersReady = 8;
constexpr absl::Duration kNever = absl::Minutes(2);
// Within this also an agent that has to wait for the processor beats.
const absl::Duration kPatientIsolation = absl::Milliseconds(200) * Slow();

TEST_F(AgentTest, AKilledAgentLeavesNothing) {
  StartAgent(kNever, kWorkers, kWorkersReady);
  const Instant killed = MonotonicNow();
  kill(agent_.pid, SIGKILL);
  ExpectAllGone(killed, kGoneLimit);
}

TEST_F(AgentTest, AnAgentThatEndsLeavesNothing) {
  StartAgent(kNever, kWorkers, kWorkersReady);
  agent_.in.Reset();
  ExpectAllGone(MonotonicNow(), kGoneLimit);
}

// A forked child of the agent may keep the agent's end of the channel open; the pidfd reports the
// agent's end all the same.
TEST_F(AgentTest, AKilledAgentIsNoticedWithoutTheChannel) {
  auto hold = *MakePipe();
  StartAgent(kNever, {"--hold-channel", "live"}, 1, hold.first.get());
  const Instant killed = MonotonicNow();
  kill(agent_.pid, SIGKILL);
  ExpectAllGone(killed, kGoneLimit);
  hold.second.Reset();
}

TEST_F(AgentTest, AFrozenAgentLosesItsTreeAfterTheIsolationTimeout) {
  StartAgent(kPatientIsolation, kWorkers, kWorkersReady);
  const Instant frozen = MonotonicNow();
  kill(agent_.pid, SIGSTOP);
  EXPECT_TRUE(DiesWithin(keeper_, absl::Seconds(2) * Slow()));
  const absl::Duration silent = MonotonicNow() - frozen;
  std::cout << "gone after " << silent << "\n";
  // The last beat was up to a quarter of the timeout old, or half where the agent had to wait.
  EXPECT_GE(silent, kPatientIsolation / 2);
  kill(agent_.pid, SIGKILL);
  EXPECT_TRUE(agent_.out.EndsWithin(kGoneLimit));
}

// Negative control: an agent that beats keeps its tree for longer than the timeout.
TEST_F(AgentTest, TwinAnAgentThatBeatsKeepsItsTree) {
  StartAgent(kPatientIsolation, {"live"}, 1);
  EXPECT_FALSE(DiesWithin(keeper_, 1.5 * kPatientIsolation));
  kill(agent_.pid, SIGKILL);
  ExpectAllGone(MonotonicNow(), kGoneLimit);
}

// A pause of the whole container is nobody's fault: after the thaw the agent gets time to speak.
TEST_F(AgentTest, AKeeperThatWasFrozenWithItsAgentJudgesNothing) {
  StartAgent(kPatientIsolation, {"live"}, 1);
  kill(agent_.pid, SIGSTOP);
  kill(keeper_, SIGSTOP);
  EXPECT_FALSE(DiesWithin(keeper_, 1.5 * kPatientIsolation));
  kill(keeper_, SIGCONT);
  kill(agent_.pid, SIGCONT);
  EXPECT_FALSE(DiesWithin(keeper_, 0.75 * kPatientIsolation));
  kill(agent_.pid, SIGKILL);
  ExpectAllGone(MonotonicNow(), kGoneLimit);
}

TEST_F(AgentTest, WorkersDieWithAKilledKeeperAndAgent) {
  StartAgent(kNever, {"live", "ignore-term"}, 2);
  kill(agent_.pid, SIGSTOP);  // so that it can't help
  kill(keeper_, SIGKILL);
  kill(agent_.pid, SIGKILL);
  ExpectAllGone(MonotonicNow(), kGoneLimit);
}

TEST(KeeperLostTest, TheAgentClearsWhatALostKeeperLeaves) {
  KeeperUnderTest keeper;
  Program own = StartProgram(Misbehave({"live"}));
  own.out.ReadyPid();
  keeper.is_own_child = [&](pid_t pid) { return pid == own.pid; };
  PipeReader& daemon = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
  PipeReader& chain = keeper.Spawn(1, 1, Misbehave({"chain", "4"}));
  daemon.ReadyPid();
  for (int i = 0; i < 5; ++i) chain.ReadyPid();

  kill(keeper.keeper_pid, SIGKILL);
  ASSERT_TRUE(keeper.RunUntil([&] { return keeper.keeper_lost.has_value(); }));
  EXPECT_TRUE(absl::StrContains(keeper.keeper_lost->message(), "SIGKILL")) << *keeper.keeper_lost;
  EXPECT_TRUE(daemon.EndsWithin(absl::ZeroDuration()));
  EXPECT_TRUE(chain.EndsWithin(absl::ZeroDuration()));
  EXPECT_EQ(ProcessState(own.pid), 'S');
  EXPECT_TRUE(absl::IsFailedPrecondition(keeper.Spawn({.argv = {"/bin/true"}})));
  kill(own.pid, SIGKILL);
  EXPECT_TRUE(ReapAllChildren().empty());
}

TEST(KeeperTest, OnlyKillEndsIt) {
  KeeperUnderTest keeper;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGPIPE, SIGALRM}) {
    kill(keeper.keeper_pid, number);
  }
  keeper.Spawn(1, 0, Misbehave({"exit", "6"}));
  EXPECT_EQ(keeper.RunUntilExited(1, 0).exit_code, 6);
  EXPECT_EQ(getsid(keeper.keeper_pid), keeper.keeper_pid);
}

TEST(KeeperTest, ShowsItsOwnName) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"exit"}));
  keeper.RunUntilExited(1, 0);
  std::ifstream command(absl::StrCat("/proc/", keeper.keeper_pid, "/cmdline"));
  const std::string text{std::istreambuf_iterator<char>(command), std::istreambuf_iterator<char>()};
  // Cut to the room that our own command line left.
  const std::string shown(text.c_str());
  EXPECT_TRUE(absl::StartsWith(shown, "ddprun-keeper")) << shown;
  EXPECT_TRUE(absl::StartsWith(absl::StrCat("ddprun-keeper of ", getpid()), shown)) << shown;
  std::string name;
  std::getline(std::ifstream(absl::StrCat("/proc/", keeper.keeper_pid, "/comm")), name);
  EXPECT_EQ(name, "ddprun-keeper");
}

TEST(KeeperTest, AFrozenKeeperHoldsUpNobody) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"ignore-term"}));
  out.ReadyPid();
  kill(keeper.keeper_pid, SIGSTOP);
  for (int i = 0; i < 3000; ++i)
    keeper.client->Signal(1, SIGUSR2 + 100, {});  // no signal: no effect
  keeper.client->Signal(1, SIGTERM, {});
  keeper.client->Sweep(1, {});
  kill(keeper.keeper_pid, SIGCONT);
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.empty.contains(1); }));
  EXPECT_EQ((keeper.exited[{1, 0}].signal), SIGKILL);
}

bool Holds(pid_t pid, int fd) {
  struct stat ours {};
  struct stat theirs {};
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd);
  return fstat(fd, &ours) == 0 && stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino;
}

// Whether nobody holds the other end of a pipe any more. Params: timeout_ms — -1 = none.
bool Ended(const Fd& end, int timeout_ms) {
  pollfd fd{.fd = end.get(), .events = POLLIN, .revents = 0};
  return poll(&fd, 1, timeout_ms) == 1;
}

TEST(KeeperTest, WhatItHoldsIsHeldUntilTheTreeIsEmpty) {
  auto pipe = *MakePipe();
  KeeperUnderTest keeper(absl::Seconds(120), "", pipe.second.get());
  const pid_t worker = keeper.Spawn(1, 0, Misbehave({"ignore-term"})).ReadyPid();
  EXPECT_TRUE(Holds(keeper.keeper_pid, pipe.second.get()));
  EXPECT_FALSE(Holds(worker, pipe.second.get()));
  pipe.second.Reset();
  EXPECT_FALSE(Ended(pipe.first, 0));
  keeper.client.reset();
  EXPECT_TRUE(Ended(pipe.first, -1));
  EXPECT_NE(kill(worker, 0), 0);
}

TEST(KeeperTest, TheClientMayBeDestroyedInACallback) {
  auto keeper = *launcher::ForkKeeper({});
  auto loop = *EventLoop::Create();
  std::unique_ptr<launcher::KeeperClient> client;
  launcher::KeeperClient::Callbacks callbacks;
  callbacks.on_started = [&](uint64_t, uint32_t, pid_t, bool) {
    client.reset();
    loop->Stop();
  };
  client = launcher::KeeperClient::Create(loop.get(), std::move(keeper), std::move(callbacks));
  ASSERT_TRUE(client->Spawn({.argv = Misbehave({"exit"})}).ok());
  loop->Run();
  EXPECT_EQ(client, nullptr);
  EXPECT_TRUE(ReapAllChildren().empty());
}

}  // namespace
}  // namespace ddprun::testing
