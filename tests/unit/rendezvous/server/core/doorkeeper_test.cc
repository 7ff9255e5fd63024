#include "rendezvous/server/core/doorkeeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(5'000'000'000);
constexpr absl::Duration kTick = absl::Nanoseconds(1);

// Numbers connections itself, and checks after every step.
class DoorkeeperTest : public ::testing::Test {
 protected:
  Doorkeeper::Answer Accept(const std::string& address, Instant now) {
    const Doorkeeper::Answer answer = keeper_.Accepted(ConnectionId(++last_), address, now);
    EXPECT_EQ(keeper_.BrokenInvariant(), "");
    return answer;
  }
  // Returns the connection that was evicted for it; 0 = none.
  uint64_t Admit(const std::string& address, Instant now) {
    const Doorkeeper::Answer answer = Accept(address, now);
    EXPECT_TRUE(answer.admitted) << last_;
    return answer.evicted.value_or(ConnectionId()).value();
  }
  void Forget(uint64_t id) {
    keeper_.Forget(ConnectionId(id));
    EXPECT_EQ(keeper_.BrokenInvariant(), "");
  }
  bool AcceptsAt(Instant now) const { return keeper_.NextAccept() <= now; }

  uint64_t last_ = 0;
  Doorkeeper keeper_{{.strangers = 4, .per_address = 3}};
};

TEST_F(DoorkeeperTest, WhoFindsAPlaceEndsNobody) {
  EXPECT_TRUE(AcceptsAt(Instant()));
  for (const char* address : {"a", "a", "a", "b"}) EXPECT_EQ(Admit(address, kStart), 0U);
  EXPECT_EQ(keeper_.strangers(), 4U);
}

TEST_F(DoorkeeperTest, AllPlacesTakenByYoungOnesPauseAccepting) {
  Admit("a", kStart);
  for (const char* address : {"b", "c", "d"}) Admit(address, kStart + absl::Milliseconds(300));
  EXPECT_EQ(keeper_.NextAccept(), kStart + Doorkeeper::kRipeAfter);
  Forget(2);
  EXPECT_TRUE(AcceptsAt(kStart + absl::Milliseconds(300))) << "a place is free again";
}

TEST_F(DoorkeeperTest, WhoComesBetweenIsNotAdmitted) {
  for (const char* address : {"a", "b", "c", "d"}) Admit(address, kStart);
  const Doorkeeper::Answer answer = Accept("e", kStart + Doorkeeper::kRipeAfter - kTick);
  EXPECT_FALSE(answer.admitted);
  EXPECT_EQ(answer.evicted, std::nullopt);
  EXPECT_EQ(Admit("e", kStart + Doorkeeper::kRipeAfter), 1U);
}

TEST_F(DoorkeeperTest, TheOldestOfTheAddressWithTheMostMakesRoom) {
  Admit("a", kStart);
  Admit("b", kStart);
  Admit("c", kStart);
  Admit("b", kStart);
  EXPECT_EQ(Admit("d", kStart + absl::Seconds(2)), 2U) << "b has two";
  EXPECT_EQ(Admit("e", kStart + absl::Seconds(2)), 1U) << "all have one: the oldest";
}

TEST(DoorkeeperFew, HaveTenTimesAsLongAsACrowd) {
  Doorkeeper keeper({.strangers = 4, .per_address = 3, .few = 1});
  uint64_t last = 0;
  const auto accept = [&](const std::string& address, Instant now) {
    return keeper.Accepted(ConnectionId(++last), address, now);
  };
  for (const char* address : {"a", "b", "b", "c"}) accept(address, kStart);
  EXPECT_EQ(keeper.NextAccept(), kStart + Doorkeeper::kRipeAfter) << "b has two";
  const Instant second = kStart + Doorkeeper::kRipeAfter;
  EXPECT_EQ(accept("d", second).evicted, ConnectionId(2)) << "a is older, but alone";
  EXPECT_EQ(keeper.NextAccept(), kStart + Doorkeeper::kFewRipeAfter);
  EXPECT_FALSE(accept("e", kStart + Doorkeeper::kFewRipeAfter - kTick).admitted);
  EXPECT_EQ(keeper.OutOfDescriptors(kStart + Doorkeeper::kFewRipeAfter - kTick), std::nullopt);
  EXPECT_EQ(accept("e", kStart + Doorkeeper::kFewRipeAfter).evicted, ConnectionId(1));
  EXPECT_EQ(keeper.BrokenInvariant(), "");
}

TEST_F(DoorkeeperTest, OnlyRipeOnesMakeRoom) {
  Admit("a", kStart);
  for (int i = 0; i < 3; ++i) Admit("b", kStart + absl::Milliseconds(500));
  const Instant now = kStart + Doorkeeper::kRipeAfter;
  ASSERT_TRUE(AcceptsAt(now));
  EXPECT_EQ(Admit("c", now), 1U) << "b has more, but they have their time still";
  EXPECT_FALSE(AcceptsAt(now));
}

TEST_F(DoorkeeperTest, AnAddressWithItsMostMakesRoomItself) {
  for (int i = 0; i < 3; ++i) Admit("a", kStart);
  EXPECT_TRUE(AcceptsAt(kStart)) << "others find a place";
  const Doorkeeper::Answer young = Accept("a", kStart + Doorkeeper::kRipeAfter - kTick);
  EXPECT_FALSE(young.admitted);
  EXPECT_EQ(young.evicted, std::nullopt);
  EXPECT_EQ(Admit("a", kStart + Doorkeeper::kRipeAfter), 1U);
  EXPECT_EQ(Admit("b", kStart + Doorkeeper::kRipeAfter), 0U);
  EXPECT_EQ(Admit("a", kStart + Doorkeeper::kRipeAfter), 2U)
      << "not one of b's, though all is full";
}

TEST_F(DoorkeeperTest, WhoIsKnownIsNeverEndedNorCounted) {
  for (uint64_t i = 1; i <= 100; ++i) {
    EXPECT_EQ(Admit("a", kStart), 0U);
    Forget(i);
  }
  EXPECT_EQ(keeper_.strangers(), 0U);
  EXPECT_EQ(keeper_.OutOfDescriptors(kStart + absl::Hours(1)), std::nullopt);
}

TEST_F(DoorkeeperTest, AnUnknownNumberIsIgnored) {
  Admit("a", kStart);
  Forget(7);
  Forget(1);
  Forget(1);
  EXPECT_EQ(keeper_.strangers(), 0U);
}

TEST_F(DoorkeeperTest, WithoutDescriptorsAcceptingPausesAndOneIsEnded) {
  Admit("a", kStart);
  Admit("b", kStart);
  Admit("b", kStart);
  const Instant now = kStart + Doorkeeper::kRipeAfter;
  EXPECT_EQ(keeper_.OutOfDescriptors(now - kTick), std::nullopt) << "nobody is ripe";
  EXPECT_EQ(keeper_.NextAccept(), now - kTick + Doorkeeper::kExhaustedPause);
  EXPECT_EQ(keeper_.OutOfDescriptors(now), ConnectionId(2));
  EXPECT_EQ(keeper_.NextAccept(), now + Doorkeeper::kExhaustedPause)
      << "its descriptor is free only when gRPC lets it go";
  Forget(1);
  EXPECT_TRUE(AcceptsAt(now)) << "a descriptor is free";
  EXPECT_EQ(keeper_.BrokenInvariant(), "");
}

TEST_F(DoorkeeperTest, WhoWasEvictedAndEndsFreesNoDescriptorTwice) {
  Admit("a", kStart);
  const Instant now = kStart + Doorkeeper::kRipeAfter;
  ASSERT_EQ(keeper_.OutOfDescriptors(now), ConnectionId(1));
  Forget(1);
  EXPECT_FALSE(AcceptsAt(now));
}

TEST_F(DoorkeeperTest, FromABannedAddressNobodyIsAdmittedForAWhile) {
  Admit("a", kStart);
  keeper_.Ban("a", kStart);
  keeper_.Ban("a", kStart + absl::Seconds(5));  // it is already
  EXPECT_FALSE(Accept("a", kStart + Doorkeeper::kBannedFor - kTick).admitted);
  EXPECT_TRUE(Accept("b", kStart + Doorkeeper::kBannedFor - kTick).admitted) << "but others";
  EXPECT_EQ(Admit("a", kStart + Doorkeeper::kBannedFor), 0U);
  EXPECT_EQ(keeper_.strangers(), 3U);
}

TEST_F(DoorkeeperTest, BansHaveABound) {
  for (size_t i = 0; i <= Doorkeeper::kBannedMax; ++i) keeper_.Ban(absl::StrCat(i), kStart);
  EXPECT_EQ(Admit("0", kStart), 0U) << "the oldest one was forgotten";
  EXPECT_FALSE(Accept("1", kStart).admitted);
}

TEST(DoorBounds, HalfOfWhatIsLeftIsForMembers) {
  for (const uint64_t descriptors : {256U, 1024U, 4096U, 20000U, 1048576U}) {
    const DoorBounds bounds = DoorBoundsFor(descriptors);
    EXPECT_LE(2 * bounds.strangers + 64, (descriptors + 64) / 2) << descriptors;
    EXPECT_GE(bounds.strangers, std::min<uint64_t>(4096, descriptors / 6)) << descriptors;
    EXPECT_EQ(bounds.per_address, bounds.strangers / 2);
    EXPECT_LT(bounds.few, bounds.per_address);
  }
  EXPECT_EQ(DoorBoundsFor(0).strangers, DoorBoundsFor(1024).strangers);
  EXPECT_GE(DoorBoundsFor(10).per_address, 1U);
}

// The rules again, as simply as they can be said: everybody in one list, looked through each time.
class NaiveDoorkeeper {
 public:
  explicit NaiveDoorkeeper(const DoorBounds& bounds) : bounds_(bounds) {}

  Instant NextAccept() const {
    if (strangers_.size() < bounds_.strangers) return pause_;
    Instant first = strangers_.front().since + Doorkeeper::kFewRipeAfter;
    for (const Entry& entry : strangers_) first = std::min(first, entry.since + PatienceOf(entry));
    return std::max(pause_, first);
  }
  Doorkeeper::Answer Accepted(uint64_t id, const std::string& address, Instant now) {
    Doorkeeper::Answer answer;
    if (CountOf(address) >= bounds_.per_address) {
      answer.evicted = Oldest(now, &address);
      if (!answer.evicted.has_value()) return answer;
    } else if (strangers_.size() >= bounds_.strangers) {
      answer.evicted = Largest(now);
      if (!answer.evicted.has_value()) return answer;
    }
    if (answer.evicted.has_value()) Drop(answer.evicted->value());
    strangers_.push_back({id, address, now});
    answer.admitted = true;
    return answer;
  }
  std::optional<ConnectionId> OutOfDescriptors(Instant now) {
    pause_ = now + Doorkeeper::kExhaustedPause;
    const std::optional<ConnectionId> evicted = Largest(now);
    if (evicted.has_value()) Drop(evicted->value());
    return evicted;
  }
  void Forget(uint64_t id) {
    if (Drop(id)) pause_ = Instant();
  }
  size_t size() const { return strangers_.size(); }

 private:
  struct Entry {
    uint64_t id;
    std::string address;
    Instant since;
  };
  size_t CountOf(const std::string& address) const {
    return static_cast<size_t>(
        std::count_if(strangers_.begin(), strangers_.end(),
                      [&](const Entry& entry) { return entry.address == address; }));
  }
  bool IsCrowd(const std::string& address) const { return CountOf(address) > bounds_.few; }
  absl::Duration PatienceOf(const Entry& entry) const {
    return IsCrowd(entry.address) ? Doorkeeper::kRipeAfter : Doorkeeper::kFewRipeAfter;
  }
  std::optional<ConnectionId> Oldest(Instant now, const std::string* address) const {
    for (const Entry& entry : strangers_) {
      if (now - entry.since < Doorkeeper::kRipeAfter) break;
      if (entry.address == *address) return ConnectionId(entry.id);
    }
    return std::nullopt;
  }
  std::optional<ConnectionId> Largest(Instant now) const {
    size_t most = 0;
    std::optional<ConnectionId> chosen;
    for (const Entry& entry : strangers_) {
      if (now - entry.since < Doorkeeper::kRipeAfter) break;
      if (IsCrowd(entry.address) && CountOf(entry.address) > most) {
        most = CountOf(entry.address);
        chosen = ConnectionId(entry.id);
      }
    }
    if (chosen.has_value() || strangers_.empty()) return chosen;
    const Entry& oldest = strangers_.front();
    if (now - oldest.since < Doorkeeper::kFewRipeAfter) return std::nullopt;
    return ConnectionId(oldest.id);
  }
  bool Drop(uint64_t id) {
    return std::erase_if(strangers_, [&](const Entry& entry) { return entry.id == id; }) > 0;
  }

  const DoorBounds bounds_;
  std::vector<Entry> strangers_;
  Instant pause_;
};

TEST(DoorkeeperModel, DoesWhatTheRulesSay) {
  uint64_t seed = 20261123;
  if (const char* given = std::getenv("DDPRUN_TEST_SEED"); given != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(given, &seed));
  }
  std::map<std::string, int> seen;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(absl::StrCat("DDPRUN_TEST_SEED=", seed, " round ", round));
    Rng rng(seed + static_cast<uint64_t>(round));
    const DoorBounds bounds{
        .strangers = 1 + rng.Below(12), .per_address = 1 + rng.Below(8), .few = rng.Below(4)};
    Doorkeeper keeper(bounds);
    NaiveDoorkeeper naive(bounds);
    Instant now = kStart;
    uint64_t last = 0;
    for (int step = 0; step < 300; ++step) {
      if (rng.Chance(40)) now = now + absl::Milliseconds(rng.Below(rng.Chance(5) ? 12'000 : 400));
      const uint64_t kind = rng.Below(10);
      if (kind < 6) {
        const std::string address(1, static_cast<char>('a' + rng.Below(1 + rng.Below(6))));
        ++last;
        const Doorkeeper::Answer answer = keeper.Accepted(ConnectionId(last), address, now);
        const Doorkeeper::Answer expected = naive.Accepted(last, address, now);
        ASSERT_EQ(answer.admitted, expected.admitted);
        ASSERT_EQ(answer.evicted, expected.evicted);
        ++seen[!answer.admitted ? "refused" : answer.evicted.has_value() ? "evicted" : "free"];
      } else if (kind < 9) {
        const uint64_t id = 1 + rng.Below(last + 1);
        keeper.Forget(ConnectionId(id));
        naive.Forget(id);
      } else {
        ASSERT_EQ(keeper.OutOfDescriptors(now), naive.OutOfDescriptors(now));
      }
      ASSERT_EQ(keeper.NextAccept(), naive.NextAccept());
      ASSERT_EQ(keeper.strangers(), naive.size());
      ASSERT_EQ(keeper.BrokenInvariant(), "");
    }
  }
  for (const char* what : {"refused", "evicted", "free"}) EXPECT_GT(seen[what], 1000) << what;
}

}  // namespace
}  // namespace ddprun::rendezvous
