// Ranks as real processes, which map the segment through /proc and die.
#include "worker/shm/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/support/slow.h"
#include "worker/shm/communicator.h"

namespace ddprun::worker::shm {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr size_t kPageSlot = 4096;

// A child that maps the parent's segment as `rank`, says so through the pipe, and runs `body`.
pid_t StartChild(const Segment& segment, uint32_t rank, int ready,
                 const std::function<int(std::shared_ptr<Segment>)>& body) {
  const Segment::Address address = segment.address();
  const uint32_t ranks = segment.ranks();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  absl::StatusOr<std::unique_ptr<Segment>> mine = Segment::Open(address, ranks);
  if (!mine.ok()) _exit(90);
  (*mine)->Join(rank, rank);
  if (write(ready, "1", 1) != 1) _exit(91);
  _exit(body(*std::move(mine)));
}

int WaitFor(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

absl::Status AllReduceOnce(const std::shared_ptr<Segment>& segment, uint32_t rank) {
  Communicator communicator(segment, rank);
  std::vector<float> data(100'000, 1);
  Call call = {.what = {.kind = Kind::kAllReduce, .type = DataType::kFloat32, .count = data.size()},
               .inputs = {reinterpret_cast<const std::byte*>(data.data())},
               .outputs = {reinterpret_cast<std::byte*>(data.data())}};
  const absl::Status status =
      communicator.Finish(call, absl::ZeroDuration(), MonotonicNow() + absl::Seconds(60));
  if (status.ok() && data[99'999] != static_cast<float>(segment->ranks())) {
    return absl::InternalError("wrong sum");
  }
  return status;
}

class PeerWatchTest : public ::testing::Test {
 protected:
  PeerWatchTest() : segment_(Segment::Create(2, 7, kPageSlot).value()), pipe_(MakePipe().value()) {
    segment_->Join(0, 0);
  }
  void AwaitChild() const {
    char byte = 0;
    ASSERT_EQ(read(pipe_.first.get(), &byte, 1), 1);
  }

  std::shared_ptr<Segment> segment_;
  FdPair pipe_;
};

TEST_F(PeerWatchTest, ProcessesReduceTogether) {
  const pid_t child = StartChild(*segment_, 1, pipe_.second.get(), [](const auto& segment) {
    return AllReduceOnce(segment, 1).ok() ? 0 : 1;
  });
  AwaitChild();
  const auto watch = PeerWatch::Start(segment_, 0).value();
  EXPECT_EQ(AllReduceOnce(segment_, 0), absl::OkStatus());
  EXPECT_EQ(WaitFor(child), 0);
}

TEST_F(PeerWatchTest, AKilledPeerEndsTheWaitForIt) {
  const pid_t child = StartChild(*segment_, 1, pipe_.second.get(), [](const auto&) {
    raise(SIGKILL);
    return 0;
  });
  AwaitChild();
  const auto watch = PeerWatch::Start(segment_, 0).value();
  const Instant before = MonotonicNow();
  const absl::Status status = AllReduceOnce(segment_, 0);
  EXPECT_LT(MonotonicNow() - before, absl::Seconds(1) * Slow());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), MatchesRegex("rank 1 \\(pid [0-9]+\\) ended"));
  EXPECT_EQ(WaitFor(child), -SIGKILL);
}

// Negative control: nobody watches, and the wait ends only with its deadline.
TEST_F(PeerWatchTest, WithoutAWatchADeathGoesUnnoticed) {
  const pid_t child = StartChild(*segment_, 1, pipe_.second.get(), [](const auto&) {
    raise(SIGKILL);
    return 0;
  });
  AwaitChild();
  EXPECT_EQ(WaitFor(child), -SIGKILL);
  Communicator communicator(segment_, 0);
  Call call = {.what = {.kind = Kind::kBarrier}};
  const absl::Status status =
      communicator.Finish(call, absl::ZeroDuration(), MonotonicNow() + absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PeerWatchTest, APeerThatEndedBeforeTheWatchBeganIsSeenToo) {
  const pid_t child = StartChild(*segment_, 1, pipe_.second.get(), [](const auto&) { return 0; });
  AwaitChild();
  EXPECT_EQ(WaitFor(child), 0);
  const auto watch = PeerWatch::Start(segment_, 0).value();
  EXPECT_THAT(segment_->reason(), HasSubstr("rank 1"));
}

TEST_F(PeerWatchTest, APidThatBelongsToALaterProcessCountsAsEnded) {
  segment_->Join(1, 1);  // as this very process, but started at another time
  segment_->member(1).start_ticks = 1;
  const auto watch = PeerWatch::Start(segment_, 0).value();
  EXPECT_TRUE(segment_->broken());
}

TEST_F(PeerWatchTest, AnotherFileUnderTheNumberIsRefused) {
  Segment::Address address = segment_->address();
  address.nonce = 8;
  EXPECT_THAT(Segment::Open(address, 2).status().ToString(), HasSubstr("is not the memory"));
  EXPECT_THAT(Segment::Open(segment_->address(), 3).status().ToString(),
              HasSubstr("is not the memory"));
  address.fd = pipe_.first.get();
  EXPECT_FALSE(Segment::Open(address, 2).ok());
  address.fd = 9999;
  EXPECT_EQ(Segment::Open(address, 2).status().code(), absl::StatusCode::kNotFound);
}

TEST(SegmentTest, LeavesNoNameAnywhere) {
  const auto names = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"),
                         std::filesystem::directory_iterator());
  };
  const auto before = names();
  const auto segment = Segment::Create(2, 7).value();
  EXPECT_EQ(names(), before);
}

TEST(SegmentTest, AddressesSurviveAsTextAndOthersAreRefused) {
  const auto back = Segment::Address::FromText(
      Segment::Address{.pid = 12, .fd = 3, .nonce = UINT64_MAX}.ToText());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->ToText(), "12 3 18446744073709551615");
  EXPECT_FALSE(Segment::Address::FromText("12 3").ok());
  EXPECT_FALSE(Segment::Address::FromText("12 x 4").ok());
}

}  // namespace
}  // namespace ddprun::worker::shm
