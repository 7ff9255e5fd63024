#include "rendezvous/core/members/lease_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous::lease_table_test {
namespace {

Instant At(int64_t ns) { return Instant::FromNanoseconds(ns); }

TEST(ProbeLog, KnowsWhenAProbeWasSent) {
  ProbeLog log;
  EXPECT_EQ(log.SentAt(0), std::nullopt);
  EXPECT_EQ(log.SentAt(1), std::nullopt);
  EXPECT_EQ(log.Send(At(5)), 1u);
  EXPECT_EQ(log.Send(At(9)), 2u);
  EXPECT_EQ(log.SentAt(1), At(5));
  EXPECT_EQ(log.SentAt(2), At(9));
  EXPECT_EQ(log.SentAt(3), std::nullopt);
  EXPECT_EQ(log.SentAt(UINT64_MAX), std::nullopt);
}

TEST(ProbeLog, ForgetsTheOldest) {
  ProbeLog log;
  for (size_t i = 0; i <= kProbesOutstandingMax; ++i) log.Send(At(static_cast<int64_t>(i)));
  EXPECT_EQ(log.SentAt(1), std::nullopt);
  EXPECT_EQ(log.SentAt(2), At(1));
}

// Against a plain map that is searched from end to end.
TEST(DeadlineQueue, AgreesWithADumbModel) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    DeadlineQueue queue;
    std::map<uint64_t, Instant> model;
    for (int step = 0; step < 200; ++step) {
      const uint64_t node = rng.Below(8);
      const Instant at =
          rng.Chance(20) ? Instant::Infinite() : At(static_cast<int64_t>(rng.Below(50)));
      if (rng.Chance(70)) {
        queue.Set(node, at);
        at.is_infinite() ? void(model.erase(node)) : void(model[node] = at);
      } else if (const std::optional<uint64_t> popped = queue.PopDue(at)) {
        ASSERT_LE(model.at(*popped), at);
        model.erase(*popped);
      } else {
        for (const auto& [id, deadline] : model) ASSERT_GT(deadline, at);
      }
      Instant earliest = Instant::Infinite();
      for (const auto& [id, deadline] : model) {
        earliest = std::min(earliest, deadline);
        ASSERT_EQ(queue.At(id), deadline);
      }
      ASSERT_EQ(queue.Earliest(), earliest);
      ASSERT_EQ(queue.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous::lease_table_test
