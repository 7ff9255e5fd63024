#include "rendezvous/core/describe.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace ddprun::rendezvous {
namespace {

// A rule behind it would be in no loop over the rules, and a record that names it would be refused.
TEST(RuleName, NoneIsBehindTheLast) {
  EXPECT_TRUE(RuleOf(RuleName(kLastRule)).has_value());
  EXPECT_EQ(RuleName(static_cast<Rule>(static_cast<int>(kLastRule) + 1)), "unknown");
}

TEST(FailureText, EndsWithTheCause) {
  WorkerFailure failure = {.rank = 1, .hostname = "host1", .exit_code = 1};
  failure.stderr_tail = "Traceback (most recent call last):\nValueError: 'bad'\x1b[2J\n";
  EXPECT_EQ(FailureText(failure), "worker rank 1 on host1 exited with code 1: ValueError: 'bad'");
  failure.message = "RuntimeError: its own words";
  EXPECT_EQ(FailureText(failure),
            "worker rank 1 on host1 exited with code 1: RuntimeError: its own words");
  failure.message.clear();
  failure.stderr_tail.clear();
  failure.facts = {"core: /core", "disk: /logs is full (64.0 KiB)"};
  EXPECT_EQ(FailureText(failure),
            "worker rank 1 on host1 exited with code 1: /logs is full (64.0 KiB)");
  failure.signal = SIGKILL;
  // The traceback is of an exception that the worker caught.
  failure.stderr_tail = "Traceback (most recent call last):\nValueError: once more\n";
  failure.facts = {"memory: the kernel killed 1 process"};
  EXPECT_EQ(FailureText(failure),
            "worker rank 1 on host1 was killed by SIGKILL: the kernel killed 1 process");
  failure.facts.clear();
  EXPECT_EQ(FailureText(failure), "worker rank 1 on host1 was killed by SIGKILL");
  failure.signal = SIGABRT;
  EXPECT_EQ(FailureText(failure), "worker rank 1 on host1 was killed by SIGABRT");
  failure.stderr_tail = "terminate called …\n  what():  index 7\n";
  EXPECT_EQ(FailureText(failure), "worker rank 1 on host1 was killed by SIGABRT: what():  index 7");
}

// With what to do about it, which is at its end.
TEST(FailureText, HasAWholeMessage) {
  WorkerFailure failure = {.rank = 1, .hostname = "host1", .exit_code = 1};
  failure.message = std::string(550, 'x') + "; do that\nat line 3";
  EXPECT_EQ(FailureText(failure),
            "worker rank 1 on host1 exited with code 1: " + std::string(550, 'x') + "; do that");
  failure.message = std::string(599, 'x') + "×y";
  EXPECT_EQ(FailureText(failure),
            "worker rank 1 on host1 exited with code 1: " + std::string(599, 'x') + "…");
}

}  // namespace
}  // namespace ddprun::rendezvous
