#include "launcher/daemon/core/spare_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kMemory = 100;
constexpr absl::Duration kIdle = absl::Hours(1);

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

// "start 1", "end 2: why".
std::vector<std::string> Texts(const std::vector<ShelfEffect>& effects) {
  std::vector<std::string> texts;
  for (const ShelfEffect& effect : effects) {
    if (const auto* start = std::get_if<StartSpare>(&effect)) {
      texts.push_back(absl::StrCat("start ", start->id));
    } else {
      const auto& end = std::get<EndSpare>(effect);
      texts.push_back(absl::StrCat("end ", end.id, ": ", end.why));
    }
  }
  return texts;
}

class SpareShelfTest : public ::testing::Test {
 protected:
  // A job that has come and gone; its interpreter is ready.
  uint64_t Prepare(Instant now, const std::string& name, uint64_t bytes) {
    const uint64_t id = shelf_.OnAsked(now, name, {{"script", name}}).id;
    EXPECT_THAT(Texts(shelf_.OnLeft(now, id)), ElementsAre(absl::StrCat("start ", id)));
    last_ = shelf_.OnReady(now, id, bytes);
    return id;
  }

  SpareShelf shelf_{kMemory, kIdle};
  std::vector<ShelfEffect> last_;
};

TEST_F(SpareShelfTest, GivesWhatIsReadyToOneJobOnly) {
  const uint64_t id = Prepare(At(0), "a.py", 10);
  const SpareShelf::Asked first = shelf_.OnAsked(At(1), "a.py", {{"script", "a.py"}});
  EXPECT_TRUE(first.leased);
  EXPECT_EQ(first.id, id);
  const SpareShelf::Asked second = shelf_.OnAsked(At(1), "a.py", {{"script", "a.py"}});
  EXPECT_FALSE(second.leased);
  EXPECT_EQ(second.why, "none is parked yet");
  EXPECT_FALSE(second.differs);
}

TEST_F(SpareShelfTest, ParksTheNextOneAfterThePause) {
  const uint64_t id = shelf_.OnAsked(At(0), "a.py", {}).id;
  EXPECT_THAT(Texts(shelf_.OnSettled(At(1), id, absl::Seconds(2))), IsEmpty());
  EXPECT_EQ(shelf_.NextDeadline(), At(3));
  EXPECT_THAT(Texts(shelf_.OnTime(At(2.9))), IsEmpty());
  EXPECT_THAT(Texts(shelf_.OnTime(At(3))), ElementsAre("start 1"));
  EXPECT_EQ(shelf_.OnAsked(At(4), "a.py", {}).why, "its imports are under way");
}

TEST_F(SpareShelfTest, AJobThatEndsWaitsForNoPause) {
  const uint64_t id = shelf_.OnAsked(At(0), "a.py", {}).id;
  shelf_.OnSettled(At(1), id, absl::Seconds(2));
  EXPECT_THAT(Texts(shelf_.OnSettled(At(1.5), id, absl::ZeroDuration())), ElementsAre("start 1"));
  EXPECT_THAT(Texts(shelf_.OnSettled(At(1.6), id, absl::ZeroDuration())), IsEmpty());
}

TEST_F(SpareShelfTest, TellsHowTheNearestOneDiffers) {
  for (const char* folder : {"/x", "/y"}) {
    const SpareFacts facts = {{"folder", folder}, {"umask", "22"}, {"variable A", folder}};
    const uint64_t id = shelf_.OnAsked(At(0), "a.py", facts).id;
    shelf_.OnSettled(At(0), id, absl::ZeroDuration());
    shelf_.OnReady(At(0), id, 1);
  }
  const SpareShelf::Asked asked =
      shelf_.OnAsked(At(1), "a.py", {{"folder", "/y"}, {"umask", "77"}, {"variable A", "/y"}});
  EXPECT_TRUE(asked.differs);
  EXPECT_EQ(asked.why, "umask is '77', and was '22'");
  EXPECT_FALSE(shelf_.OnAsked(At(1), "b.py", {}).differs);
}

TEST_F(SpareShelfTest, ShowsNoValueOfAVariable) {
  EXPECT_EQ(Difference({{"variable A", "x"}}, {{"variable A", "y"}}), "variable A has changed");
  EXPECT_EQ(Difference({{"variable A", "x"}}, {}), "variable A is not set any more");
  EXPECT_EQ(Difference({}, {{"variable A", "x"}}), "variable A was not set");
  EXPECT_EQ(Difference({{"a", "x"}}, {{"a", "x"}}), "");
}

TEST_F(SpareShelfTest, WhatWasNotUsedForLongestMakesRoom) {
  Prepare(At(0), "a.py", 40);
  Prepare(At(1), "b.py", 40);
  Prepare(At(2), "c.py", 40);
  EXPECT_THAT(Texts(last_), ElementsAre(HasSubstr("end 1: others need the memory")));
  EXPECT_FALSE(shelf_.kinds().contains(1));
  EXPECT_TRUE(shelf_.OnAsked(At(3), "b.py", {{"script", "b.py"}}).leased);
}

TEST_F(SpareShelfTest, WhatIsTooLargeAloneEndsAndOthersStay) {
  Prepare(At(0), "a.py", 40);
  const uint64_t large = Prepare(At(1), "b.py", kMemory + 1);
  EXPECT_THAT(Texts(last_), ElementsAre(HasSubstr("end 2: it holds")));
  EXPECT_THAT(shelf_.OnAsked(At(2), "b.py", {{"script", "b.py"}}).why, HasSubstr("it holds"));
  EXPECT_EQ(shelf_.kinds().at(large).state, SpareShelf::State::kBarred);
  EXPECT_TRUE(shelf_.OnAsked(At(2), "a.py", {{"script", "a.py"}}).leased);
}

TEST_F(SpareShelfTest, WhatNobodyUsesGoes) {
  Prepare(At(0), "a.py", 40);
  EXPECT_EQ(shelf_.NextDeadline(), At(0) + kIdle);
  EXPECT_THAT(Texts(shelf_.OnTime(At(3599))), IsEmpty());
  EXPECT_THAT(Texts(shelf_.OnTime(At(3600))), ElementsAre(HasSubstr("end 1: nobody")));
  EXPECT_THAT(shelf_.kinds(), IsEmpty());
  EXPECT_TRUE(shelf_.NextDeadline().is_infinite());
}

TEST_F(SpareShelfTest, ImportsMayTakeLongerThanOneMayWait) {
  const uint64_t id = shelf_.OnAsked(At(0), "a.py", {}).id;
  EXPECT_THAT(Texts(shelf_.OnLeft(At(1), id)), ElementsAre("start 1"));
  EXPECT_THAT(Texts(shelf_.OnTime(At(2) + kIdle)), IsEmpty());
  shelf_.OnReady(At(3) + kIdle, id, 40);
  EXPECT_EQ(shelf_.NextDeadline(), At(3) + 2 * kIdle);
}

TEST_F(SpareShelfTest, AJobThatRunsForLongFindsItsKindWhenItEnds) {
  const uint64_t id = Prepare(At(0), "a.py", 40);
  EXPECT_TRUE(shelf_.OnAsked(At(1), "a.py", {{"script", "a.py"}}).leased);
  EXPECT_TRUE(shelf_.NextDeadline().is_infinite());
  EXPECT_THAT(Texts(shelf_.OnSettled(At(2), id, absl::ZeroDuration())), ElementsAre("start 1"));
  shelf_.OnReady(At(3), id, 40);
  EXPECT_THAT(Texts(shelf_.OnTime(At(2) + kIdle)), IsEmpty());
  EXPECT_THAT(Texts(shelf_.OnTime(At(3) + kIdle)), ElementsAre(HasSubstr("end 1: nobody")));
  EXPECT_THAT(Texts(shelf_.OnTime(At(90000))), IsEmpty());
  EXPECT_THAT(Texts(shelf_.OnLeft(At(90001), id)), ElementsAre("start 1"));
}

TEST_F(SpareShelfTest, OneThatIsGoneIsParkedAgainForTheNextJobOnly) {
  const uint64_t id = Prepare(At(0), "a.py", 40);
  shelf_.OnGone(id, "its interpreter was killed");
  EXPECT_THAT(Texts(shelf_.OnTime(At(10))), IsEmpty());
  EXPECT_EQ(shelf_.OnAsked(At(11), "a.py", {{"script", "a.py"}}).why, "its interpreter was killed");
  EXPECT_THAT(Texts(shelf_.OnSettled(At(12), id, absl::ZeroDuration())), ElementsAre("start 1"));
}

TEST_F(SpareShelfTest, AllGoWhenMemoryIsShort) {
  Prepare(At(0), "a.py", 40);
  Prepare(At(1), "b.py", 40);
  EXPECT_THAT(Texts(shelf_.OnShort()),
              ElementsAre("end 1: memory is short", "end 2: memory is short"));
  EXPECT_FALSE(shelf_.OnAsked(At(2), "a.py", {{"script", "a.py"}}).leased);
}

TEST_F(SpareShelfTest, KindsAreBounded) {
  for (size_t i = 0; i <= SpareShelf::kKindsMax; ++i) {
    shelf_.OnAsked(At(static_cast<double>(i)), absl::StrCat(i), {{"script", absl::StrCat(i)}});
  }
  shelf_.OnTime(At(100));
  EXPECT_EQ(shelf_.kinds().size(), SpareShelf::kKindsMax);
  EXPECT_THAT(shelf_.kinds(), Not(testing::Contains(testing::Key(1))));
}

}  // namespace
}  // namespace ddprun::launcher
