#include "base/event_loop.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/loop_until.h"

namespace ddprun {
namespace {

class LoopInboxTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::shared_ptr<LoopInbox> inbox_ = LoopInbox::Create(loop_.get());
};

TEST_F(LoopInboxTest, RunsOnTheLoopInOrder) {
  std::vector<int> seen;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(inbox_->Post([&seen, i, this] {
        EXPECT_TRUE(loop_->OnLoop());
        seen.push_back(i);
      }));
    }
  });
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return seen.size() == 1000; }));
  poster.join();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  inbox_->Close();
}

TEST_F(LoopInboxTest, CallsMayPost) {
  int seen = 0;
  inbox_->Post([&] { inbox_->Post([&] { ++seen; }); });
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return seen == 1; }));
}

TEST_F(LoopInboxTest, CloseDropsWhatWasPosted) {
  int seen = 0;
  EXPECT_TRUE(inbox_->Post([&] {
    ++seen;
    inbox_->Close();
  }));
  EXPECT_TRUE(inbox_->Post([&] { ++seen; }));
  bool later = false;
  loop_->Post([&] { later = true; });
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return later; }));
  EXPECT_EQ(seen, 1) << "the first call closed the inbox before the second";
  EXPECT_FALSE(inbox_->open());
}

TEST_F(LoopInboxTest, RunsWhatWasPostedAndRefusesTheRest) {
  int seen = 0;
  EXPECT_TRUE(inbox_->Post([&] { ++seen; }));
  EXPECT_TRUE(inbox_->Post([&] { EXPECT_FALSE(inbox_->Post([&] { ++seen; })); }));
  inbox_->RunPostedAndClose();
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(inbox_->Post([&] { ++seen; }));
  bool later = false;
  loop_->Post([&] { later = true; });
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return later; }));
  EXPECT_EQ(seen, 1);
}

// What gRPC's threads do: they hold the inbox longer than its owner and the loop live.
TEST_F(LoopInboxTest, OutlivesItsOwnerAndItsLoop) {
  std::vector<std::thread> posters;
  for (int i = 0; i < 4; ++i) {
    posters.emplace_back([inbox = inbox_] {
      while (inbox->Post([] {})) {
      }
    });
  }
  inbox_->Close();
  inbox_.reset();
  loop_.reset();
  for (std::thread& poster : posters) poster.join();
}

}  // namespace
}  // namespace ddprun
