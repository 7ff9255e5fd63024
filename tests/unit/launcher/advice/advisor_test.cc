// Every rule of advice_rules.yaml with a message that was really seen (messages.txt).
#include "launcher/advice/advisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/core/failures/first_cause.h"
#include "tests/support/trees.h"

namespace ddprun::launcher {
namespace {

using rendezvous::WorkerFailure;
using ::testing::HasSubstr;
using ::testing::Not;

WorkerFailure Failure(std::string stderr_tail) {
  return {.rank = 3,
          .hostname = "host1",
          .pid = 4242,
          .exit_code = 1,
          .stderr_tail = std::move(stderr_tail)};
}

std::string RuleFor(const Advisor& advisor, const WorkerFailure& failure) {
  const std::optional<Advice> advice = advisor.Advise(failure);
  return advice.has_value() ? advice->rule : "";
}

struct Message {
  std::string rule;
  WorkerFailure failure;
};

std::vector<Message> Messages() {
  std::ifstream file(InSourceTree("tests/unit/launcher/advice/messages.txt"));
  std::vector<Message> messages;
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "== ")) {
      const std::vector<std::string> words = absl::StrSplit(text, " | ");
      messages.push_back({.rule = words.front(), .failure = Failure("")});
    } else if (absl::ConsumePrefix(&text, "fact> ")) {
      messages.back().failure.facts.emplace_back(text);
    } else if (!messages.empty()) {
      absl::StrAppend(&messages.back().failure.stderr_tail, line, "\n");
    }
  }
  return messages;
}

// The rules without one of them.
Advisor Without(const std::string& name) {
  std::string text = kAdviceRules;
  const size_t begin = text.find(absl::StrCat("- name: ", name, "\n"));
  EXPECT_NE(begin, std::string::npos) << name;
  text.erase(begin, text.find("\n- name: ", begin) - begin);
  absl::StatusOr<Advisor> advisor = Advisor::Read(text);
  EXPECT_TRUE(advisor.ok()) << advisor.status();
  return *std::move(advisor);
}

// A fault of a worker's own settings counts for --crash_loop and is charged to its node, which an
// error about a peer never is. nccl_connect and nccl_system may be either; they count as a peer's.
TEST(AdvisorTest, OnlyErrorsAboutPeersWeighAsSuch) {
  const std::set<std::string> peers = {
      "gloo_timeout",  "infiniband",       "nccl_connect", "nccl_other", "nccl_remote",
      "nccl_system",   "nccl_timeout",     "peer_gone",    "rank_left",  "rank_missing_at_barrier",
      "store_timeout", "store_unreachable"};
  for (const Message& message : Messages()) {
    if (message.failure.stderr_tail.empty()) continue;  // only a fact
    EXPECT_EQ(rendezvous::Weigh(message.failure) == rendezvous::Evidence::kPeerError,
              peers.contains(message.rule))
        << message.rule << message.failure.stderr_tail;
  }
  const WorkerFailure of_peer = Failure("PeerError: rank 4 failed: bind: EADDRINUSE");
  EXPECT_EQ(rendezvous::Weigh(of_peer), rendezvous::Evidence::kPeerError);
}

TEST(AdvisorTest, EveryRuleKnowsItsMessages) {
  std::set<std::string> seen;
  for (const Message& message : Messages()) {
    const std::optional<Advice> advice = Advisor::Known().Advise(message.failure);
    ASSERT_TRUE(advice.has_value()) << message.rule << message.failure.stderr_tail;
    EXPECT_EQ(advice->rule, message.rule) << message.failure.stderr_tail;
    EXPECT_THAT(absl::StrCat(advice->text, advice->next), Not(HasSubstr("${")));
    EXPECT_THAT(advice->next, Not(HasSubstr("\n")));
    seen.insert(message.rule);
  }
  const std::vector<std::string> names = Advisor::Known().RuleNames();
  EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end()));
}

// Negative control: what a rule says is said by that rule alone.
TEST(AdvisorTest, WithoutARuleItsAdviceIsGone) {
  std::string last;
  for (const Message& message : Messages()) {
    if (message.rule == std::exchange(last, message.rule)) continue;
    EXPECT_NE(RuleFor(Without(message.rule), message.failure), message.rule);
  }
}

TEST(AdvisorTest, WhatNobodyKnowsGetsNoAdvice) {
  for (const char* words : {"", "ValueError: bad batch\n", "Address not in use", "out of memory"}) {
    EXPECT_EQ(RuleFor(Advisor::Known(), Failure(words)), "") << words;
  }
}

TEST(AdvisorTest, SaysTheNumbers) {
  const std::optional<Advice> advice = Advisor::Known().Advise(Failure(
      "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 2 has a total capacity of 23.65 GiB"));
  ASSERT_TRUE(advice.has_value());
  EXPECT_THAT(advice->text,
              HasSubstr("GPU 2 of this node (23.65 GiB) had no room for another 22.00 MiB"));
  EXPECT_THAT(advice->next, HasSubstr("ssh host1 nvidia-smi"));
}

TEST(AdvisorTest, LooksAtMessageTracebackAndFacts) {
  WorkerFailure failure = Failure("");
  failure.message = "ModuleNotFoundError: No module named 'apex'";
  EXPECT_EQ(RuleFor(Advisor::Known(), failure), "missing_module");
  std::swap(failure.message, failure.traceback);
  EXPECT_EQ(RuleFor(Advisor::Known(), failure), "missing_module");
  // A fact is ours: a worker that prints the same words is none.
  failure = Failure("memory: the kernel killed 1 process");
  EXPECT_EQ(RuleFor(Advisor::Known(), failure), "");
  failure.facts = {"memory: the kernel killed 1 process"};
  EXPECT_EQ(RuleFor(Advisor::Known(), failure), "killed_for_memory");
}

TEST(AdvisorTest, CausesGoBeforeConsequencesAndLaterLinesBeforeEarlierOnes) {
  const Advisor& known = Advisor::Known();
  EXPECT_EQ(RuleFor(known, Failure("ModuleNotFoundError: No module named 'a'\n"
                                   "Connection closed by peer [10.0.0.1]:1\n")),
            "missing_module");
  const std::optional<Advice> advice = known.Advise(Failure(
      "ModuleNotFoundError: No module named 'a'\nModuleNotFoundError: No module named 'b'\n"));
  ASSERT_TRUE(advice.has_value());
  EXPECT_EQ(advice->line, "ModuleNotFoundError: No module named 'b'");
}

TEST(AdvisorTest, WordsOfAWorkerAreNoCommands) {
  const Advisor& known = Advisor::Known();
  EXPECT_EQ(RuleFor(known, Failure("can't open file '/x$(reboot)': [Errno 2]")), "");
  EXPECT_EQ(RuleFor(known, Failure("can't open file '-rf': [Errno 2]")), "");
  WorkerFailure failure = Failure("No space left on device");
  failure.hostname = "a;reboot";
  EXPECT_EQ(known.Advise(failure)->next, "ssh HOST df -h . /tmp /dev/shm");
}

TEST(AdvisorTest, WorkIsBounded) {
  const Advisor& known = Advisor::Known();
  const std::string words = "No space left on device";
  EXPECT_EQ(RuleFor(known, Failure(std::string(1990, 'x') + words)), "");
  EXPECT_EQ(RuleFor(known, Failure(words + "\n" + std::string(30'000, '\n'))), "");
  EXPECT_EQ(RuleFor(known, Failure(std::string(30'000, '\n') + words)), "disk_full");
  EXPECT_EQ(RuleFor(known, Failure("\xff\xfe " + words)), "disk_full");
}

TEST(AdvisorTest, WrongRulesSayWhereAndWhy) {
  const auto error = [](const std::string& yaml) {
    return std::string(Advisor::Read(yaml).status().message());
  };
  const std::string texts = "  advice: a ${gpu}\n  next: n\n";
  EXPECT_THAT(error("a: b"), HasSubstr("line 1: not a list of rules"));
  EXPECT_THAT(error("- name: a\n  match: [x]\n" + texts), HasSubstr("${gpu} is no group"));
  EXPECT_THAT(error("- name: a\n  match: ['(']\n" + texts), HasSubstr("line 2: pattern '('"));
  EXPECT_THAT(error("- name: a\n" + texts), HasSubstr("a list of patterns"));
  EXPECT_THAT(error("- name: a\n  math: [x]\n" + texts), HasSubstr("unknown key 'math'"));
  EXPECT_THAT(error("- name: a\n  match: [x]\n  next: n\n"), HasSubstr("has a name, advice"));
  EXPECT_THAT(error("- [a]"), HasSubstr("a rule is a map"));
  EXPECT_EQ(error("- name: a\n  match: ['(?P<gpu>x)']\n" + texts), "");
}

TEST(AdvisorTest, ACppProgramIsAdvisedInItsOwnWords) {
  for (const Message& message : Messages()) {
    if (!std::set<std::string>{"loss_not_finite", "rank_left", "store_timeout", "nccl_timeout",
                               "same_gpu_twice", "no_gpu"}
             .contains(message.rule)) {
      continue;
    }
    const std::optional<Advice> of_python = Advisor::Known().Advise(message.failure);
    for (const char* words : {"FAILED_PRECONDITION: a", "INTERNAL: a", "c10::Error: a",
                              "PeerError: rank 1 failed: a"}) {
      WorkerFailure failure = message.failure;
      failure.message = words;
      const std::optional<Advice> advice = Advisor::Known().Advise(failure);
      ASSERT_TRUE(advice.has_value()) << message.rule;
      const std::string text = absl::StrCat(advice->text, advice->next);
      for (const char* of_other : {"*.py", "python3", "torch.", "True", "join()", "os.environ"}) {
        EXPECT_THAT(text, Not(HasSubstr(of_other))) << message.rule;
      }
    }
    WorkerFailure failure = message.failure;
    failure.message = "torch.distributed.DistBackendError: a";
    EXPECT_EQ(Advisor::Known().Advise(failure)->text, of_python->text);
  }
}

}  // namespace
}  // namespace ddprun::launcher
