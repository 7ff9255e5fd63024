// A program that parks by itself, before its main(), and becomes workers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/os/processes.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using launcher::ParkRequest;
using launcher::SpawnRequest;
using Variables = std::vector<std::string>;

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  return {std::istream_iterator<pid_t>(file), {}};
}

class KeeperProgramTest : public ::testing::Test {
 protected:
  // Parks it, and gives its first word.
  std::string Park(Variables environment = {}, Variables words = {}) {
    words.insert(words.begin(), HelperPath("parkable"));
    argv_ = words;
    const size_t before = keeper_.said.size();
    EXPECT_TRUE(keeper_.client
                    ->Park({.argv = argv_,
                            .environment = std::move(environment),
                            .tail = {"DDPRUN_WARM_ROOM=" + std::string(4096, '.')}})
                    .ok());
    EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.said.size() > before; }));
    return keeper_.said.empty() ? "" : keeper_.said.back();
  }

  // Asks for a worker, and gives what it writes to stdout.
  PipeReader Ask(uint64_t generation, uint32_t local_rank, Variables environment) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    SpawnRequest request{.generation = generation,
                         .local_rank = local_rank,
                         .argv = argv_,
                         .environment = std::move(environment),
                         .stdout_fd = Fd(fds[1])};
    request.parked_patience = kPatience;
    EXPECT_TRUE(keeper_.client->Spawn(std::move(request)).ok());
    return PipeReader(Fd(fds[0]));
  }

  // The words of a worker that has started, behind "ready PID"; checks what all of them have.
  std::string Words(uint64_t generation, uint32_t local_rank, PipeReader* out) {
    const pid_t pid = keeper_.RunUntilStarted(generation, local_rank);
    const std::string line = out->Line().value_or("");
    const std::string begin = absl::StrCat("ready ", pid, " ");
    EXPECT_TRUE(absl::StartsWith(line, begin)) << line;
    EXPECT_EQ(getsid(pid), pid);
    const std::vector<pid_t> children = ChildrenOf(keeper_.keeper_pid);
    EXPECT_TRUE(std::count(children.begin(), children.end(), pid)) << "another one's child";
    return line.size() > begin.size() ? line.substr(begin.size()) : "";
  }

  bool RunUntilEnded() {
    return keeper_.RunUntil([&] { return !keeper_.ended.empty(); });
  }
  // The keeper's only child that is no worker.
  pid_t Parked() { return ChildrenOf(keeper_.keeper_pid).front(); }

  std::vector<std::string> argv_ = {HelperPath("parkable")};
  KeeperUnderTest keeper_;
};

TEST_F(KeeperProgramTest, BecomesTheWorkersOfOneGenerationAfterTheOther) {
  EXPECT_TRUE(absl::StartsWith(Park(), "ready "));
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    PipeReader out = Ask(generation, 0, {absl::StrCat("RANK=", generation)});
    EXPECT_EQ(Words(generation, 0, &out), absl::StrCat(generation, " yes - 1"));
    EXPECT_TRUE((keeper_.parked[{generation, 0}]));
    const pid_t pid = keeper_.started[{generation, 0}];
    kill(pid, SIGUSR1);
    EXPECT_EQ(keeper_.RunUntilExited(generation, 0).signal, SIGUSR1);
    EXPECT_TRUE(out.EndsWithin()) << "somebody else has its stdout";
    EXPECT_EQ(keeper_.Sweep(generation), 0U);
  }
  EXPECT_TRUE(keeper_.ended.empty());
}

TEST_F(KeeperProgramTest, SeveralAreAskedForAtOnce) {
  Park();
  std::vector<PipeReader> outs;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    outs.push_back(Ask(1, rank, {absl::StrCat("RANK=", rank)}));
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Words(1, rank, &outs[rank]), absl::StrCat(rank, " yes - 1"));
    EXPECT_TRUE((keeper_.parked[{1, rank}]));
  }
}

TEST_F(KeeperProgramTest, ItIsAsTheOneThatIsExecuted) {
  const Variables environment = {"RANK=7", "UNWANTED=1"};
  PipeReader cold = Ask(1, 0, environment);
  const std::string words = Words(1, 0, &cold);
  EXPECT_EQ(words, "7 yes - 1");
  EXPECT_FALSE((keeper_.parked[{1, 0}]));
  Park({"UNWANTED=1"});
  PipeReader warm = Ask(1, 1, environment);
  EXPECT_EQ(Words(1, 1, &warm), words);
  EXPECT_TRUE((keeper_.parked[{1, 1}]));
}

TEST_F(KeeperProgramTest, AnEnvironmentThatIsLargerThanItsRoom) {
  Park();
  PipeReader out = Ask(1, 0, {"BULK=" + std::string(100'000, 'x'), "RANK=0"});
  EXPECT_EQ(Words(1, 0, &out), "0 yes - 100000");
  const pid_t pid = keeper_.started[{1, 0}];
  EXPECT_EQ(launcher::InitialVariable(pid, "DDPRUN_WORKER_TAG"),
            absl::StrCat(keeper_.keeper_pid, ".1.0"));
}

TEST_F(KeeperProgramTest, WhatAWorkerLeavesGoesWithItAndNotWithAnother) {
  Park({}, {"daemon"});
  std::vector<PipeReader> outs;
  std::vector<pid_t> daemons;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    outs.push_back(Ask(1, rank, {absl::StrCat("RANK=", rank)}));
    daemons.push_back(outs.back().ReadyPid());
    Words(1, rank, &outs.back());
    EXPECT_TRUE((keeper_.parked[{1, rank}]));
  }
  kill(keeper_.started[{1, 1}], SIGKILL);
  EXPECT_EQ(keeper_.RunUntilExited(1, 1).swept, 1U);
  EXPECT_TRUE(DiesWithin(daemons[1]));
  EXPECT_FALSE(DiesWithin(daemons[0], absl::ZeroDuration()));
}

TEST_F(KeeperProgramTest, WhoForksItsNextWorkerIsKilledAndItGoes) {
  Park();
  const std::vector<pid_t> between = ChildrenOf(Parked());
  ASSERT_EQ(between.size(), 1U);
  const std::vector<pid_t> next = ChildrenOf(between[0]);
  ASSERT_EQ(next.size(), 1U);
  kill(next[0], SIGKILL);
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_EQ(keeper_.ended[0], "exited with status 0");
  PipeReader out = Ask(1, 0, {"RANK=0"});
  EXPECT_EQ(Words(1, 0, &out), "0 yes - 1");
  EXPECT_FALSE((keeper_.parked[{1, 0}]));
}

TEST_F(KeeperProgramTest, AllOfItGoesWithTheKeepersAgent) {
  Park();
  const pid_t parked = Parked();
  const pid_t between = ChildrenOf(parked).front();
  const pid_t next = ChildrenOf(between).front();
  keeper_.client.reset();
  for (const pid_t pid : {parked, between, next}) EXPECT_TRUE(DiesWithin(pid));
}

TEST_F(KeeperProgramTest, OneWhoseLibraryHoldsAFileSaysThatItCanNot) {
  EXPECT_EQ(Park({"EARLY_FILE=1"}), "cannot a library of it holds /dev/zero open");
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_EQ(keeper_.ended[0], "exited with status 0");
}

TEST_F(KeeperProgramTest, OneWhoseLibraryStartsAThreadSaysThatItCanNot) {
  EXPECT_EQ(Park({"EARLY_THREAD=1"}), "cannot a library of it starts a thread");
}

}  // namespace
}  // namespace ddprun::testing
