#include "rendezvous/core/failures/failure_list.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kPeerGone[] = "RuntimeError: Connection closed by peer";

// Adds failures one after the other, a millisecond apart.
class Reports {
 public:
  void Add(const std::string& node, uint32_t rank, const std::string& message, int signal = 0,
           uint64_t after_first_ms = 0) {
    WorkerFailure failure;
    failure.node_id = NodeId(node);
    failure.rank = rank;
    failure.message = message;
    failure.signal = signal;
    failure.exit_code = signal == 0 ? 1 : 0;
    failure.after_first_ms = after_first_ms;
    list_.Add(failure, Instant::FromNanoseconds(++arrivals_ * 1'000'000));
    EXPECT_EQ(list_.BrokenInvariant(), "");
  }

  bool Has(uint32_t rank) const {
    for (const ReportedFailure& each : list_.reported()) {
      if (each.failure.rank == rank) return true;
    }
    return false;
  }

  const FailureList& list() const { return list_; }
  uint32_t CauseRank() const { return FindFirstCause(list_.reported()).failures.at(0).rank; }

 private:
  FailureList list_;
  int64_t arrivals_ = 0;
};

TEST(FailureList, WhatIsReportedAgainIsCompleted) {
  Reports reports;
  reports.Add("a", 0, "");
  reports.Add("a", 1, "");
  reports.Add("a", 0, "ValueError: NaN");
  ASSERT_EQ(reports.list().reported().size(), 2U);
  EXPECT_EQ(reports.list().reported()[0].failure.message, "ValueError: NaN");
  EXPECT_EQ(reports.list().reported()[0].arrival, Instant::FromNanoseconds(1'000'000));
}

// The worker that was killed is often reported last, because its node was busy.
TEST(FailureList, ALateCauseIsFoundBehindManyConsequences) {
  for (const bool one_node : {false, true}) {
    Reports reports;
    for (uint32_t rank = 0; rank < 3 * kFailuresMax; ++rank) {
      reports.Add(one_node ? "a" : absl::StrCat("n", rank), rank, kPeerGone);
    }
    reports.Add("z", 1000, "", SIGKILL);
    EXPECT_EQ(reports.list().reported().size(), kFailuresMax);
    EXPECT_EQ(reports.CauseRank(), 1000U);
  }
}

TEST(FailureList, OfEqualOnesTheLastGoes) {
  Reports reports;
  for (uint32_t rank = 0; rank <= kFailuresMax; ++rank) {
    reports.Add(absl::StrCat("n", rank), rank, kPeerGone);
  }
  EXPECT_TRUE(reports.Has(0));
  EXPECT_FALSE(reports.Has(kFailuresMax));
}

TEST(FailureList, EachNodesStrongestStaysBeforeASecondOfAny) {
  Reports reports;
  for (uint32_t rank = 0; rank < kFailuresMax; ++rank) {
    reports.Add("a", rank, "", SIGKILL, rank);
  }
  reports.Add("b", 500, kPeerGone);
  EXPECT_TRUE(reports.Has(0));
  EXPECT_TRUE(reports.Has(500));
  EXPECT_FALSE(reports.Has(kFailuresMax - 1));
}

// A node's strongest is the one of its greatest weight, however late.
TEST(FailureList, OfANodeTheWeightCountsMoreThanTheOrder) {
  Reports reports;
  reports.Add("a", 0, kPeerGone);
  reports.Add("a", 1, "", SIGSEGV, 7);
  for (uint32_t rank = 2; rank <= kFailuresMax; ++rank) {
    reports.Add(absl::StrCat("n", rank), rank, kPeerGone);
  }
  EXPECT_FALSE(reports.Has(0));
  EXPECT_TRUE(reports.Has(1));
}

// The words of a failure come with the second report (GroupStopped): its weight is the new one.
TEST(FailureList, ACompletedFailureHasItsNewWeight) {
  Reports reports;
  reports.Add("a", 0, "");
  for (uint32_t rank = 1; rank < kFailuresMax; ++rank) {
    reports.Add(absl::StrCat("n", rank), rank, "");
  }
  reports.Add("a", 0, kPeerGone);
  reports.Add("z", 900, "");
  EXPECT_FALSE(reports.Has(0));
  EXPECT_TRUE(reports.Has(900));
}

}  // namespace
}  // namespace ddprun::rendezvous
