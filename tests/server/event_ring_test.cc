#include "rendezvous/server/event_watch.h"

#include <gtest/gtest.h>

#include <vector>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

void AddTo(EventRing* ring, int count, size_t bytes = 1) {
  for (int i = 0; i < count; ++i) {
    ring->Add(Instant(), absl::UnixEpoch(), Note{"e", {{"why", std::string(bytes, 'x')}}});
  }
}

TEST(EventRing, GivesWhatComesAfterANumber) {
  EventRing ring;
  EXPECT_EQ(ring.After(0), nullptr);
  AddTo(&ring, 3);
  EXPECT_EQ(ring.last(), 3U);
  EXPECT_EQ(ring.After(0)->number, 1U);
  EXPECT_EQ(ring.After(2)->number, 3U);
  EXPECT_EQ(ring.After(3), nullptr);
  EXPECT_EQ(ring.After(99), nullptr);
}

TEST(EventRing, ForgetsTheOldest) {
  EventRing ring;
  AddTo(&ring, static_cast<int>(kEventsMax) + 10);
  EXPECT_EQ(ring.After(0)->number, 11U);
  EventRing large;
  AddTo(&large, 5, kEventBytesMax / 2);
  EXPECT_EQ(large.After(0)->number, 5U) << "two of these are beyond the bound";
}

TEST(EventRing, TellsListenersWhichMayUnsubscribeThen) {
  EventRing ring;
  int heard = 0;
  uint64_t subscription = 0;
  subscription = ring.Subscribe([&] {
    if (++heard == 2) ring.Unsubscribe(subscription);
  });
  AddTo(&ring, 3);
  EXPECT_EQ(heard, 2);
  ring.Subscribe([&] { ++heard; });
  ring.Close();
  ring.Close();
  EXPECT_EQ(heard, 3);
  EXPECT_TRUE(ring.closed());
}

}  // namespace
}  // namespace ddprun::rendezvous
