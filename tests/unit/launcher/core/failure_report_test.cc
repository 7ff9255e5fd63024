// Golden texts of the failure report: torchrun's block, and rule R12.
#include "launcher/core/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

using rendezvous::NodeId;
using rendezvous::Outcome;
using rendezvous::Verdict;
using rendezvous::WorkerFailure;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kNoon = 1'767'355'445'000;  // 2026-01-02 12:04:05 UTC

WorkerFailure Failure(uint32_t rank) {
  return {.rank = rank,
          .local_rank = rank % 2,
          .node_id = NodeId("host1"),
          .hostname = "host1",
          .pid = 4240 + rank,
          .exit_code = 1,
          .wall_time_ms = kNoon};
}

std::string Report(const Verdict& verdict) {
  return FailureReport(verdict, {.entry_point = "train.py"});
}

TEST(FailureReport, OfHangsThatCantBeToldApartNobodyIsTheCause) {
  WorkerFailure hung = Failure(0);
  hung.hung = true;
  hung.message = "no progress in train, step 7, for 3s; 2 workers can't be told apart";
  Verdict verdict{.outcome = Outcome::kFailed, .failures = {hung}, .first_causes = 1};
  EXPECT_THAT(Report(verdict), HasSubstr("Root Cause (not known; one of the workers that hung):"));
  EXPECT_THAT(Report(verdict), HasSubstr("hung with others, and which of them is the cause"));
  verdict.failures.front().message = "no progress in train, step 7, for 3s; behind the others";
  EXPECT_THAT(Report(verdict), HasSubstr("Root Cause (first observed failure):"));
  EXPECT_THAT(Report(verdict), HasSubstr("hung, so ddprun killed it"));
}

TEST(FailureReport, KilledWorkerHeadsTheReport) {
  WorkerFailure killed = Failure(3);
  killed.signal = SIGKILL;
  WorkerFailure victim = Failure(0);
  victim.hostname = "host0";
  victim.node_id = NodeId("host0-b");
  victim.message = "RuntimeError: Connection closed by peer";
  victim.traceback = "Traceback …\n  File \"train.py\", line 3\nRuntimeError: Connection closed";
  victim.after_first_ms = 12;
  const Verdict verdict{.outcome = Outcome::kFailed,
                        .reason =
                            "worker rank 3 on host1 was killed by SIGKILL, and no restarts "
                            "are left (2 of 2 used)",
                        .failures = {killed, victim},
                        .first_causes = 1};
  EXPECT_EQ(Report(verdict), R"(============================================================
train.py FAILED
worker rank 3 on host1 was killed by SIGKILL, and no restarts are left (2 of 2
used)
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-02_12:04:05 (12 ms after the first of this node)
  host      : host0 (node: host0-b)
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4240)
  error_file: <N/A>
  traceback : RuntimeError: Connection closed by peer
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_12:04:05
  host      : host1
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 4243) (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4243
  cause     : killed by SIGKILL (9)
  hint      : ddprun did not send it. Most often the kernel's out-of-memory
              killer did (look for the pid in `dmesg`); else a scheduler or a
              person.
  stderr    : nothing was written
============================================================
)");
}

TEST(FailureReport, ExceptionShowsItsStack) {
  WorkerFailure failure = Failure(1);
  failure.message = "ValueError: bad\nsecond line";
  failure.traceback =
      "Traceback (most recent call last):\n  File \"t.py\", line 1\nValueError: bad\n";
  failure.error_file = "/logs/job7/attempt_0/1/error.json";
  failure.stderr_tail = "not shown, because the stack says it";
  EXPECT_EQ(Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1}),
            R"(============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_12:04:05
  host      : host1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 4241)
  error_file: /logs/job7/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "t.py", line 1
  ValueError: bad
  cause     : exited with code 1
============================================================
)");
}

// Check 58 of tests/contract.
TEST(FailureReport, AMessageWithoutAStackIsTheTraceback) {
  WorkerFailure failure = Failure(1);
  failure.message = "m\nmore";
  EXPECT_THAT(Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1}),
              HasSubstr("  traceback : m\n  more\n"));
}

// Check 53 of tests/contract: rank 0 is no cause, and is shown as what it is.
TEST(FailureReport, WorkersThatWereStoppedAreMarked) {
  WorkerFailure stopped = Failure(0);
  stopped.signal = SIGTERM;
  const std::string report =
      FailureReport({.outcome = Outcome::kFailed, .failures = {Failure(1)}, .first_causes = 1},
                    {.entry_point = "train.py", .stopped = {stopped}});
  EXPECT_THAT(report, HasSubstr("Failures:\n[1]:\n"));
  EXPECT_THAT(report, HasSubstr("  exitcode  : -15 (pid: 4240) (SIGTERM)\n"
                                "  error_file: <N/A>\n"
                                "  traceback : stopped by ddprun after the first failure\n"));
  EXPECT_THAT(report, HasSubstr("  exitcode  : 1 (pid: 4241)\n"
                                "  error_file: <N/A>\n"
                                "  traceback : To enable traceback see: "
                                "https://pytorch.org/docs/stable/elastic/errors.html\n"));
}

// Python's page helps no program in another language.
TEST(FailureReport, AProgramThatReportsNothingHasNoLinkToPythonsPage) {
  const std::string report =
      FailureReport({.outcome = Outcome::kFailed, .failures = {Failure(1)}, .first_causes = 1},
                    {.entry_point = "./train", .runs_python = false});
  EXPECT_THAT(report, HasSubstr("  traceback : none: no error was reported\n"));
  EXPECT_THAT(report, Not(HasSubstr("To enable traceback see")));
}

// torchrun's link to a page about tracebacks helps nobody who has one on the screen.
TEST(FailureReport, TheErrorOfStderrIsTheTraceback) {
  WorkerFailure failure = Failure(1);
  failure.stderr_tail = "Traceback (most recent call last):\n  File \"t.py\"\nValueError: bad\n";
  const std::string report =
      Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1});
  EXPECT_THAT(report, HasSubstr("  traceback : ValueError: bad\n"));
  EXPECT_THAT(report, Not(HasSubstr("To enable traceback see")));
}

TEST(FailureReport, FactsFollowTheCause) {
  WorkerFailure failure = Failure(0);
  failure.signal = SIGKILL;
  failure.facts = {"memory: the kernel killed it", "core: /tmp/core.1", "No name: here", "nothing"};
  const std::string report =
      Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1});
  EXPECT_THAT(report, HasSubstr("  cause     : killed by SIGKILL (9)\n"
                                "  memory    : the kernel killed it\n"
                                "  core      : /tmp/core.1\n"
                                "  fact      : No name: here\n"
                                "  fact      : nothing\n"
                                "  stderr"))
      << "no guess about memory beside a fact";
}

TEST(FailureReport, StderrWhereThereIsNoStack) {
  WorkerFailure failure = Failure(1);
  failure.exit_code = 3;
  failure.stderr_tail = "loading\nout of disk\n";
  const Verdict verdict{.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1};
  EXPECT_THAT(Report(verdict),
              HasSubstr("  stderr    : (last lines)\n    loading\n    out of disk\n====="));
  Verdict silent = verdict;
  silent.failures[0].stderr_tail.clear();
  EXPECT_THAT(Report(silent), HasSubstr("  stderr    : nothing was written\n"));
  silent.failures[0].facts = {"stderr: not kept: open /dev/ptmx: no such device"};
  EXPECT_THAT(Report(silent), HasSubstr("  stderr    : not kept: open /dev/ptmx"));
  EXPECT_THAT(Report(silent), Not(HasSubstr("nothing was written")));
}

TEST(FailureReport, WorkerThatNeverStarted) {
  WorkerFailure failure = Failure(0);
  failure.pid = 0;
  failure.start_error = "exec './train': Permission denied (errno 13, EACCES)";
  const std::string report =
      Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1});
  EXPECT_THAT(report, HasSubstr("  exitcode  : <N/A> (never started)\n"
                                "  error_file: <N/A>\n"
                                "  traceback : could not be started: exec './train': Permission "
                                "denied (errno 13,\n              EACCES)\n"
                                "====="));
}

TEST(FailureReport, TieIsShownAsATie) {
  const Verdict verdict{.outcome = Outcome::kFailed,
                        .failures = {Failure(0), Failure(1), Failure(2)},
                        .first_causes = 2};
  const std::string report = Report(verdict);
  EXPECT_THAT(
      report,
      HasSubstr("Root Cause (a tie: 2 failures, none of them known to be the first):\n[0]"));
  const size_t second = report.find("[1]:");
  const size_t others = report.find("Failures:\n[2]:");
  ASSERT_NE(others, std::string::npos);
  EXPECT_LT(others, second);
}

TEST(FailureReport, IsBounded) {
  Verdict verdict{.outcome = Outcome::kFailed, .first_causes = 1};
  for (uint32_t rank = 0; rank < 64; ++rank) verdict.failures.push_back(Failure(rank));
  const std::string report = Report(verdict);
  EXPECT_THAT(report, HasSubstr("[10]:\n"));
  EXPECT_THAT(report, Not(HasSubstr("[11]:\n")));
  EXPECT_THAT(report, HasSubstr("… and 53 more\n"));
  verdict.first_causes = 64;
  const std::string tie = Report(verdict);
  EXPECT_THAT(tie, HasSubstr("… and 53 more\n"));
  EXPECT_THAT(tie, HasSubstr("<NO_OTHER_FAILURES>"));
}

// R8: a verdict to many nodes.
TEST(FailureReport, WhatWasLeftOutIsCountedAndWhoHasItNamed) {
  Verdict verdict{.outcome = Outcome::kFailed,
                  .failures = {Failure(0)},
                  .first_causes = 1,
                  .failures_left_out = 54,
                  .whole_on = "host7"};
  const std::string report = Report(verdict);
  EXPECT_THAT(report,
              HasSubstr("… and 54 more\n  54 of them are left out in a job of this many nodes; "
                        "ddprun on host7 reports\n  all: see its --report_file\n"));
  EXPECT_THAT(report, Not(HasSubstr("<NO_OTHER_FAILURES>")));
  EXPECT_THAT(report, HasSubstr("Root Cause (first observed failure):\n"));
  verdict.causes_left_out = 50;
  EXPECT_THAT(Report(verdict), HasSubstr("(a tie: 51 failures, none"));
  EXPECT_THAT(Report(verdict), HasSubstr("… and 50 more\n"));
  EXPECT_THAT(Report(verdict), HasSubstr("… and 4 more\n"));
  verdict.whole_on = "";
  EXPECT_THAT(Report(verdict), HasSubstr("are left out in a job of this many nodes\n"));
}

TEST(FailureReport, ACauseWhoseTextsWereLeftOutDoesNotLookAsIfItWroteNone) {
  Verdict verdict{.outcome = Outcome::kFailed, .failures = {Failure(0)}, .first_causes = 1};
  verdict.failures[0].traceback.clear();
  verdict.failures[0].stderr_tail.clear();
  EXPECT_THAT(Report(verdict), HasSubstr("nothing was written"));
  verdict.failures[0].texts_left_out = true;
  verdict.whole_on = "host7";
  const std::string report = Report(verdict);
  EXPECT_THAT(report, Not(HasSubstr("nothing was written")));
  EXPECT_THAT(
      report,
      HasSubstr("  cut       : some of what it wrote is left out in a job of this many nodes"));
  verdict.failures[0].stderr_tail = "last words";
  EXPECT_THAT(Report(verdict), HasSubstr("    last words\n  cut "));
}

TEST(FailureReport, CountsOfTheServiceAreNotTrusted) {
  Verdict verdict{.outcome = Outcome::kFailed, .failures = {Failure(0)}, .first_causes = 9999};
  EXPECT_THAT(Report(verdict), HasSubstr("first observed failure"));
  verdict.first_causes = 0;
  EXPECT_THAT(Report(verdict), HasSubstr("first observed failure"));
  verdict.failures[0].wall_time_ms = std::numeric_limits<uint64_t>::max();
  verdict.failures[0].signal = 4711;
  EXPECT_THAT(Report(verdict), HasSubstr("killed by signal 4711 (4711)"));
  verdict.failures[0].signal = -5;
  EXPECT_THAT(Report(verdict), HasSubstr("killed by signal -5"));
  verdict.failures[0].wall_time_ms = 0;
  EXPECT_THAT(Report(verdict), HasSubstr("  time      : <N/A>\n"));
}

TEST(FailureReport, WithoutFailuresTheReasonStands) {
  EXPECT_EQ(Report({.outcome = Outcome::kFailed, .reason = "1 of 2 nodes came within 600 s"}),
            R"(============================================================
train.py FAILED
1 of 2 nodes came within 600 s
============================================================
)");
}

TEST(FailureReport, OnlyFailuresHaveAReport) {
  EXPECT_EQ(Report({.outcome = Outcome::kSucceeded, .failures = {Failure(0)}}), "");
  EXPECT_EQ(Report({.outcome = Outcome::kStopped, .reason = "SIGINT"}), "");
}

TEST(FailureReport, TextsOfWorkersDoNotSteerTheTerminal) {
  WorkerFailure failure = Failure(0);
  failure.hostname = "evil\x1b[2J\nhost";
  failure.message = "\x1b]0;x\a" + std::string(5000, 'm');
  failure.traceback = "\x1b[31mred\x1b[0m\rnext";
  failure.error_file = "a\nb";
  const std::string report = Report({.outcome = Outcome::kFailed,
                                     .reason = "r\x1b[0m",
                                     .failures = {failure},
                                     .first_causes = 1});
  EXPECT_THAT(report, Not(HasSubstr("\x1b")));
  EXPECT_THAT(report, HasSubstr("  traceback : red\n  next\n"));
  EXPECT_THAT(report, HasSubstr("evil host"));
  EXPECT_LT(report.size(), 3000U);
}

TEST(DescribeFailure, Words) {
  const auto by_signal = [](int signal, bool core = false) {
    return DescribeFailure({.signal = signal, .core_dumped = core});
  };
  EXPECT_EQ(by_signal(SIGKILL), "killed by SIGKILL (9)");
  EXPECT_EQ(by_signal(SIGTERM), "killed by SIGTERM (15)");
  EXPECT_EQ(by_signal(SIGSEGV, true), "killed by SIGSEGV (11, segmentation fault), core dumped");
  EXPECT_EQ(by_signal(SIGABRT), "killed by SIGABRT (6, aborted)");
  EXPECT_EQ(DescribeFailure({.exit_code = 3}), "exited with code 3");
  EXPECT_EQ(DescribeFailure({.exit_code = 137}),
            "exited with code 137 (128 + 9: a child of it was killed by SIGKILL)");
  EXPECT_EQ(DescribeFailure({.exit_code = 255}), "exited with code 255");
}

TEST(FailureReport, FitsInEightyColumns) {
  WorkerFailure failure = Failure(0);
  for (int signal = 1; signal < 32; ++signal) {
    failure.signal = signal;
    const std::string report =
        Report({.outcome = Outcome::kFailed, .failures = {failure}, .first_causes = 1});
    for (absl::string_view line : absl::StrSplit(report, '\n')) EXPECT_LE(line.size(), 80U) << line;
  }
}

}  // namespace
}  // namespace ddprun::launcher
