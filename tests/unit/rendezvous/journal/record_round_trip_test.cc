#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_fields.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/wire/field_checker.h"
#include "tests/support/sample_records.h"

namespace ddprun::rendezvous {
namespace {

absl::StatusOr<JobRecord> BackAndForth(const JobRecord& record) {
  v1::JobRecord again;
  EXPECT_TRUE(again.ParseFromString(ToProto(record).SerializeAsString()));
  return FromProto(again);
}

TEST(RecordRoundTrip, RandomRecordsComeBackEqual) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    const JobRecord record = RandomRecord(&rng);
    const absl::StatusOr<JobRecord> back = BackAndForth(record);
    ASSERT_TRUE(back.ok()) << "seed " << seed << ": " << back.status();
    ASSERT_EQ(*back, record) << "seed " << seed << ": " << ToProto(record).DebugString();
  }
}

TEST(RecordRoundTrip, ManyNodes) {
  const JobRecord record = RunningRecord("job7", 4096);
  const absl::StatusOr<JobRecord> back = BackAndForth(record);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, record);
}

TEST(RecordRoundTrip, SamplesOfARunningAndAClosingJob) {
  for (const JobRecord& record : {RunningRecord("job7", 1), ClosingJobRecord("job7")}) {
    const absl::StatusOr<JobRecord> back = BackAndForth(record);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, record);
  }
}

// To the nanosecond: the ledger sums up to the job's age.
TEST(RecordRoundTrip, TimesAreExact) {
  JobRecord record = RunningRecord("job7", 1);
  record.round->age = absl::Nanoseconds(kAgeMaxNs - 1'000'000'000);
  record.ledger.age = absl::Nanoseconds(kAgeMaxNs);
  const absl::StatusOr<JobRecord> back = BackAndForth(record);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->round->age, record.round->age);
  EXPECT_EQ(back->ledger, record.ledger);
}

// As on the wire: own data beyond a bound is cut off, and what is left is a record.
TEST(RecordRoundTrip, TextsBeyondTheirBoundsAreCut) {
  JobRecord record = RunningRecord("job7", 1);
  record.reason = std::string(kTextBytesMax + 1, 'x');
  record.round->terms.reason = "\xff is no UTF-8";
  record.history.last_failure = std::string(kFailureKindBytesMax + 1, '\xff');
  const absl::StatusOr<JobRecord> back = BackAndForth(record);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_LE(back->reason.size(), kTextBytesMax);
  EXPECT_EQ(back->round->terms.reason, "\uFFFD is no UTF-8");
  EXPECT_EQ(back->history.last_failure, std::string(kFailureKindBytesMax, '\xff'));
}

}  // namespace
}  // namespace ddprun::rendezvous
