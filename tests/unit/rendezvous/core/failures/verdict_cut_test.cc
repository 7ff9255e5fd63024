#include "rendezvous/core/failures/failure_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

WorkerFailure Failure(uint32_t rank, size_t message, size_t traceback, size_t tail) {
  WorkerFailure failure;
  failure.rank = rank;
  failure.hostname = absl::StrCat("host", rank);
  failure.message = std::string(message, 'm');
  failure.traceback = std::string(traceback, 't');
  failure.stderr_tail = std::string(tail, 'e');
  return failure;
}

Verdict Failed(uint32_t count, uint32_t causes, size_t message, size_t traceback, size_t tail) {
  Verdict verdict{.outcome = Outcome::kFailed, .reason = "rank 0 crashed", .rule = "spent"};
  verdict.first_causes = causes;
  for (uint32_t rank = 0; rank < count; ++rank) {
    verdict.failures.push_back(Failure(rank, message, traceback, tail));
  }
  return verdict;
}

bool HasTexts(const WorkerFailure& failure) {
  return !failure.traceback.empty() || !failure.stderr_tail.empty();
}

TEST(VerdictBytes, AreAShareOfAllAndNeverTooFew) {
  EXPECT_EQ(VerdictBytesFor(1), 32U << 20);
  EXPECT_EQ(VerdictBytesFor(32), 1U << 20);
  EXPECT_EQ(VerdictBytesFor(4096), 8U << 10);
  EXPECT_EQ(VerdictBytesFor(kNodesMax), 8U << 10);
  for (const size_t nodes : {1, 2, 3, 7, 100, 1000, 4095}) {
    EXPECT_LE(nodes * VerdictBytesFor(nodes), kVerdictsBytesMax) << nodes;
  }
}

TEST(CutVerdict, WhatFitsStaysAsItIs) {
  const Verdict verdict = Failed(3, 1, 100, 1000, 100);
  EXPECT_LT(BytesOnWire(verdict), kVerdictBytesMin);
  EXPECT_EQ(CutVerdict(verdict, kVerdictBytesMin), verdict);
  const Verdict large = Failed(64, 1, 100, 1000, 100);
  EXPECT_EQ(CutVerdict(large, BytesOnWire(large)), large);
  EXPECT_NE(CutVerdict(large, BytesOnWire(large) - 1), large);
}

TEST(CutVerdict, StacksOfTheOthersGoFirstAndOfTheLastFirst) {
  const Verdict verdict = Failed(10, 1, 100, 2000, 500);
  const Verdict cut = CutVerdict(verdict, BytesOnWire(verdict) - 3000);
  ASSERT_EQ(cut.failures.size(), 10U);
  EXPECT_EQ(cut.failures_left_out, 0U);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(cut.failures[i], verdict.failures[i]) << i;
  for (size_t i = 8; i < 10; ++i) {
    EXPECT_FALSE(HasTexts(cut.failures[i])) << i;
    EXPECT_TRUE(cut.failures[i].texts_left_out) << i;
    EXPECT_EQ(cut.failures[i].message, verdict.failures[i].message) << "the message stays";
  }
}

TEST(CutVerdict, ThenTheOthersThemselvesGo) {
  const Verdict verdict = Failed(64, 1, 1000, 4000, 1000);
  const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
  EXPECT_EQ(cut.failures.front(), verdict.failures.front()) << "the first cause is whole";
  EXPECT_EQ(cut.first_causes, 1U);
  EXPECT_EQ(cut.causes_left_out, 0U);
  EXPECT_EQ(cut.failures.size() + cut.failures_left_out, 64U);
  for (size_t i = 1; i < cut.failures.size(); ++i) {
    EXPECT_EQ(cut.failures[i].rank, i) << "the likeliest are left";
    EXPECT_FALSE(HasTexts(cut.failures[i])) << i;
  }
  EXPECT_LE(BytesOnWire(cut), kVerdictBytesMin);
  EXPECT_GT(BytesOnWire(cut), kVerdictBytesMin - 1500) << "no more than is needed";
}

TEST(CutVerdict, FailuresWithoutTextsAreNotMarked) {
  const Verdict verdict = Failed(64, 1, 1000, 0, 0);
  const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
  ASSERT_FALSE(cut.failures.empty());
  for (const WorkerFailure& failure : cut.failures) EXPECT_FALSE(failure.texts_left_out);
}

TEST(CutVerdict, FirstCausesGoLastAndAreCounted) {
  const Verdict verdict = Failed(64, 40, 1000, 4000, 1000);
  const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
  EXPECT_EQ(cut.failures.front(), verdict.failures.front());
  EXPECT_EQ(cut.first_causes, cut.failures.size()) << "the others went before";
  EXPECT_EQ(cut.first_causes + cut.causes_left_out, 40U);
  EXPECT_EQ(cut.failures.size() + cut.failures_left_out, 64U);
  EXPECT_TRUE(cut.failures.back().texts_left_out);
  // With room for all of them, those that tie keep what they wrote.
  const Verdict roomy = CutVerdict(verdict, 300'000);
  ASSERT_GE(roomy.failures.size(), 40U);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(roomy.failures[i], verdict.failures[i]) << i;
  EXPECT_EQ(roomy.causes_left_out, 0U);
}

// After a loss nothing is a first cause (R7), and yet the likeliest stands first.
TEST(CutVerdict, WithoutFirstCausesTheFirstOneStays) {
  const Verdict verdict = Failed(64, 0, 1000, 4000, 1000);
  const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
  EXPECT_EQ(cut.failures.front(), verdict.failures.front());
  EXPECT_EQ(cut.first_causes, 0U);
  EXPECT_EQ(cut.causes_left_out, 0U);
  EXPECT_EQ(cut.failures.size() + cut.failures_left_out, 64U);
}

TEST(CutVerdict, AnOnlyOneKeepsTheEndOfItsStack) {
  Verdict verdict = Failed(1, 1, 1000, kTracebackBytesMax - 5, kTextBytesMax);
  verdict.failures[0].traceback += "ENDED";
  const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
  ASSERT_EQ(cut.failures.size(), 1U);
  const WorkerFailure& first = cut.failures[0];
  EXPECT_TRUE(first.texts_left_out);
  EXPECT_EQ(first.stderr_tail, "") << "the stack says more";
  EXPECT_EQ(first.message, verdict.failures[0].message);
  EXPECT_TRUE(absl::StartsWith(first.traceback, "…t"));
  EXPECT_TRUE(absl::EndsWith(first.traceback, "ENDED"));
  EXPECT_GT(first.traceback.size(), 6'000U);
  EXPECT_EQ(BytesOnWire(cut), kVerdictBytesMin);
}

TEST(CutVerdict, CutsBetweenCharacters) {
  for (size_t shift = 0; shift < 3; ++shift) {
    Verdict verdict = Failed(1, 1, shift, 0, 0);
    for (int i = 0; i < 5000; ++i) verdict.failures[0].traceback += "€";
    for (int i = 0; i < 1300; ++i) verdict.failures[0].start_error += "€";
    const Verdict cut = CutVerdict(verdict, kVerdictBytesMin);
    EXPECT_LE(BytesOnWire(cut), kVerdictBytesMin);
    const std::string& traceback = cut.failures[0].traceback;
    ASSERT_GT(traceback.size(), 3U);
    EXPECT_EQ(traceback.substr(0, 6), "…€");
    EXPECT_EQ(traceback.size() % 3, 0U) << "no half of one";
  }
}

// Whatever there is, and however much of it, fits into the least.
TEST(CutVerdict, TheWorstFits) {
  for (const uint32_t causes : {0U, 1U, 2U, 63U, 64U}) {
    Verdict verdict = Failed(64, causes, kTextBytesMax, kTracebackBytesMax, kTextBytesMax);
    verdict.reason.assign(kTextBytesMax, 'r');
    verdict.rule.assign(kNameBytesMax, 'r');
    verdict.whole_on.assign(kNameBytesMax, 'h');
    for (WorkerFailure& failure : verdict.failures) {
      failure.node_id = NodeId(std::string(kNameBytesMax, 'n'));
      failure.hostname.assign(kNameBytesMax, 'h');
      failure.start_error.assign(kTextBytesMax, 's');
      failure.error_file.assign(kTextBytesMax, 'f');
      failure.facts.assign(kFactsMax, std::string(kFactBytesMax, 'x'));
    }
    for (size_t bytes_max = kVerdictBytesMin; bytes_max < 3'000'000; bytes_max += 33'333) {
      const Verdict cut = CutVerdict(verdict, bytes_max);
      EXPECT_LE(BytesOnWire(cut), bytes_max) << causes;
      ASSERT_FALSE(cut.failures.empty());
      EXPECT_EQ(cut.failures.front().rank, 0U);
      EXPECT_EQ(cut.failures.size() + cut.failures_left_out, 64U);
      EXPECT_EQ(cut.first_causes + cut.causes_left_out, causes);
      EXPECT_LE(cut.first_causes, cut.failures.size());
    }
  }
}

TEST(CutVerdictDeath, OfNobodyAndOfTooLittle) {
  EXPECT_DEATH(VerdictBytesFor(0), "to nobody");
  EXPECT_DEATH(CutVerdict(Failed(1, 1, 1, 1, 1), kVerdictBytesMin - 1), "8191");
}

}  // namespace
}  // namespace ddprun::rendezvous
