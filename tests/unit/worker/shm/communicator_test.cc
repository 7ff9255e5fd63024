// Ranks as threads over one mapping of a segment, so that ThreadSanitizer sees every access.
#include "worker/shm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace ddprun::worker::shm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSmallSlot = 16384;  // so that little data need many chunks

std::shared_ptr<Segment> MakeSegment(uint32_t ranks, size_t slot_bytes = kSmallSlot) {
  std::shared_ptr<Segment> segment = Segment::Create(ranks, 42, slot_bytes).value();
  for (uint32_t rank = 0; rank < ranks; ++rank) segment->Join(rank, rank);
  return segment;
}

// Runs `body` once a rank, each in a thread of its own.
void OnRanks(const std::shared_ptr<Segment>& segment,
             const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < segment->ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(segment, rank);
      body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
const std::byte* In(const std::vector<T>& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}
template <typename T>
std::byte* Out(std::vector<T>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

Call AllReduce(std::vector<float>& data) {
  return {.what = {.kind = Kind::kAllReduce, .type = DataType::kFloat32, .count = data.size()},
          .inputs = {In(data)},
          .outputs = {Out(data)}};
}

absl::Status RunCall(Communicator& communicator, Call call) {
  return communicator.Finish(call, absl::ZeroDuration(), MonotonicNow() + absl::Seconds(60));
}

class CommunicatorTest : public ::testing::TestWithParam<uint32_t> {};
class PeersTest : public CommunicatorTest {};  // for what takes two

TEST_P(CommunicatorTest, AllReducesOfManySizesAfterEachOther) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks), [&](Communicator& communicator) {
    for (const size_t count : {0, 1, 63, 64, 65, 1000, 4096, 4097, 20000, 7}) {
      std::vector<float> data(count);
      std::iota(data.begin(), data.end(), static_cast<float>(communicator.rank() * 1000));
      ASSERT_TRUE(RunCall(communicator, AllReduce(data)).ok());
      const auto offset = static_cast<float>(1000 * ranks * (ranks - 1) / 2);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(i * ranks) + offset) << i << " of " << count;
      }
    }
  });
}

// The second barrier of a shared reduction needs a chunk of more than 32 KiB.
TEST_P(CommunicatorTest, LargeAllReducesShareTheReduction) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks, Segment::kSlotBytes), [&](Communicator& communicator) {
    std::vector<float> data(600'001);  // three chunks
    std::iota(data.begin(), data.end(), static_cast<float>(communicator.rank()));
    ASSERT_TRUE(RunCall(communicator, AllReduce(data)).ok());
    const auto offset = static_cast<float>(ranks * (ranks - 1) / 2);
    for (size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], static_cast<float>(i) * static_cast<float>(ranks) + offset) << i;
    }
  });
}

TEST_P(CommunicatorTest, BroadcastsFromEveryRoot) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks), [&](Communicator& communicator) {
    for (uint32_t root = 0; root < ranks; ++root) {
      std::vector<int64_t> data(5000, communicator.rank());
      ASSERT_TRUE(RunCall(communicator, {.what = {.kind = Kind::kBroadcast,
                                                  .type = DataType::kInt64,
                                                  .root = root,
                                                  .count = data.size()},
                                         .inputs = {In(data)},
                                         .outputs = {Out(data)}})
                      .ok());
      ASSERT_EQ(data, std::vector<int64_t>(5000, root));
    }
  });
}

TEST_P(CommunicatorTest, AllGathersByRank) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks), [&](Communicator& communicator) {
    const std::vector<int32_t> mine(9000, static_cast<int32_t>(communicator.rank()));
    std::vector<std::vector<int32_t>> all(ranks, std::vector<int32_t>(9000, -1));
    Call call = {.what = {.kind = Kind::kAllGather, .type = DataType::kInt32, .count = 9000},
                 .inputs = {In(mine)}};
    for (auto& part : all) call.outputs.push_back(Out(part));
    ASSERT_TRUE(RunCall(communicator, call).ok());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(all[rank], std::vector<int32_t>(9000, static_cast<int32_t>(rank)));
    }
  });
}

TEST_P(CommunicatorTest, ReduceScattersEachRanksBlock) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks), [&](Communicator& communicator) {
    std::vector<std::vector<double>> blocks;
    Call call = {.what = {.kind = Kind::kReduceScatter, .type = DataType::kFloat64, .count = 3001}};
    for (uint32_t block = 0; block < ranks; ++block) {
      blocks.emplace_back(3001, block * 10.0 + communicator.rank());
    }
    std::vector<double> mine(3001);
    for (const auto& block : blocks) call.inputs.push_back(In(block));
    call.outputs = {Out(mine)};
    ASSERT_TRUE(RunCall(communicator, call).ok());
    const double expected = communicator.rank() * 10.0 * ranks + ranks * (ranks - 1) / 2.0;
    ASSERT_EQ(mine, std::vector<double>(3001, expected));
  });
}

// The last rank to come finishes without sleeping; for earlier ranks Try() returns that the call
// isn't done.
TEST_P(PeersTest, TryDoesNotWaitForPeers) {
  const uint32_t ranks = GetParam();
  const std::shared_ptr<Segment> segment = MakeSegment(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::vector<float>> data(ranks, std::vector<float>(10, 1));
  std::vector<Call> calls;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<Communicator>(segment, rank));
    calls.push_back(AllReduce(data[rank]));
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const absl::StatusOr<bool> done = communicators[rank]->Try(calls[rank], absl::ZeroDuration());
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(*done, rank + 1 == ranks);
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(
        communicators[rank]->Finish(calls[rank], absl::ZeroDuration(), MonotonicNow()).ok());
    EXPECT_EQ(data[rank], std::vector<float>(10, static_cast<float>(ranks)));
  }
}

TEST_P(PeersTest, DifferentCallsAreNamedOnEveryRank) {
  const uint32_t ranks = GetParam();
  OnRanks(MakeSegment(ranks), [&](Communicator& communicator) {
    const bool last = communicator.rank() + 1 == ranks;
    std::vector<float> data(last ? 3 : 1000);
    const absl::Status status = RunCall(communicator, AllReduce(data));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("called all-reduce of 1000 float32 (sum), rank"));
    EXPECT_THAT(status.message(), HasSubstr(") all-reduce of 3 float32 (sum) (collective 1)"));
    EXPECT_FALSE(RunCall(communicator, AllReduce(data)).ok());  // and the group is of no more use
  });
}

TEST_P(PeersTest, ABreakWakesWhoWaits) {
  const uint32_t ranks = GetParam();
  const std::shared_ptr<Segment> segment = MakeSegment(ranks);
  OnRanks(segment, [&](Communicator& communicator) {
    if (communicator.rank() + 1 == ranks) return segment->Break("rank 3 ended");
    std::vector<float> data(1000);
    Call call = AllReduce(data);
    const absl::Status status =
        communicator.Finish(call, absl::ZeroDuration(), Instant::Infinite());
    EXPECT_EQ(status, absl::UnavailableError("rank 3 ended"));
  });
}

TEST_P(CommunicatorTest, WhoLeavesAfterTheLastCallHarmsNobody) {
  const uint32_t ranks = GetParam();
  const std::shared_ptr<Segment> segment = MakeSegment(ranks);
  OnRanks(segment, [&](Communicator& communicator) {
    std::vector<float> data(1000, 1);
    EXPECT_TRUE(RunCall(communicator, AllReduce(data)).ok());
    segment->Break("somebody left");
    EXPECT_EQ(data, std::vector<float>(1000, static_cast<float>(ranks)));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorTest, ::testing::Values(1, 2, 3, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, PeersTest, ::testing::Values(2, 3, 4));

TEST(CommunicatorTimeoutTest, NamesWhoDidNotComeAndEndsTheGroup) {
  const std::shared_ptr<Segment> segment = MakeSegment(2);
  Communicator communicator(segment, 0);
  std::vector<float> data(10);
  Call call = AllReduce(data);
  const Instant deadline = MonotonicNow() + absl::Milliseconds(20);
  const absl::Status status = communicator.Finish(call, absl::ZeroDuration(), deadline);
  EXPECT_GE(MonotonicNow(), deadline);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (pid "));
  EXPECT_THAT(status.message(), HasSubstr("didn't come to all-reduce of 10 float32 (sum)"));
  EXPECT_THAT(segment->reason(), HasSubstr("rank 1"));
}

// The counts of arrivals wrap around after 2^31 barriers.
TEST(CommunicatorWrapTest, CountsMayWrapAround) {
  const std::shared_ptr<Segment> segment = Segment::Create(2, 1, kSmallSlot).value();
  for (uint32_t rank = 0; rank < 2; ++rank) segment->line(rank).state = UINT32_MAX - 7;
  OnRanks(segment, [](Communicator& communicator) {
    communicator.StartFrom(UINT32_MAX - 7);
    for (int i = 0; i < 10; ++i) {
      std::vector<float> data(10, 1);
      ASSERT_TRUE(RunCall(communicator, AllReduce(data)).ok());
      ASSERT_EQ(data, std::vector<float>(10, 2));
    }
  });
  EXPECT_FALSE(segment->broken());
}

}  // namespace
}  // namespace ddprun::worker::shm
