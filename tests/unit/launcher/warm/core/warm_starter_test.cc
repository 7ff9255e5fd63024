// How workers start, whatever becomes of the interpreter that is parked.
#include "launcher/warm/core/warm_starter.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

Learned Modules(std::vector<std::string> names) {
  Learned learned;
  for (std::string& name : names) {
    learned.steps.push_back({Learned::Step::Kind::kModule, std::move(name)});
  }
  return learned;
}

struct Name {
  std::string operator()(const Park&) const { return "park"; }
  std::string operator()(const Keep&) const { return "keep"; }
  std::string operator()(const Forget&) const { return "forget"; }
  std::string operator()(const WarmNote& note) const { return note.event; }
  std::string operator()(const TellOnce&) const { return "tell"; }
};

class WarmStarterTest : public ::testing::Test {
 protected:
  std::string Done(const std::vector<WarmEffect>& effects) {
    EXPECT_EQ(starter_.BrokenInvariant(), "");
    return absl::StrJoin(effects, " ", [](std::string* out, const WarmEffect& effect) {
      absl::StrAppend(out, std::visit(Name(), effect));
    });
  }
  std::string Begin(std::optional<Learned> kept, bool preloads = false) {
    return Done(starter_.Begin(now_, std::move(kept), preloads));
  }
  std::string Said(const std::string& text) { return Done(starter_.OnSaid(now_, text)); }
  std::string Ended() { return Done(starter_.OnEnded(now_, "was killed by SIGKILL")); }
  absl::Duration Patience() const { return starter_.Patience(now_); }

  Instant now_ = Instant::FromNanoseconds(1'000'000'000);
  WarmStarter starter_;
};

TEST_F(WarmStarterTest, TheFirstWorkersAreColdAndTellWhatToImport) {
  EXPECT_EQ(Begin(std::nullopt), "");
  EXPECT_TRUE(starter_.WantsToLearn());
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"torch"}))), "warm_learned keep park");
  EXPECT_FALSE(starter_.WantsToLearn());
  EXPECT_EQ(Said("ready 1800"), "warm_ready keep");
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
}

TEST_F(WarmStarterTest, OnlyTheFirstWordOfAJobCounts) {
  Begin(std::nullopt);
  Done(starter_.OnLearned(now_, Modules({"torch"})));
  EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"numpy"}))), "");
  EXPECT_EQ(starter_.learned().steps[0].text, "torch");
}

TEST_F(WarmStarterTest, WhatWasKeptIsImportedFromTheBeginning) {
  EXPECT_EQ(Begin(Modules({"torch"})), "park");
  EXPECT_FALSE(starter_.WantsToLearn());
  EXPECT_EQ(Patience(), WarmStarter::kLoadPatience);
  now_ = now_ + absl::Seconds(20);
  EXPECT_EQ(Patience(), WarmStarter::kLoadPatience - absl::Seconds(20));
  now_ = now_ + absl::Seconds(50);
  EXPECT_EQ(Patience(), absl::ZeroDuration());
}

TEST_F(WarmStarterTest, ModulesByHandNeedNothingLearned) {
  EXPECT_EQ(Begin(std::nullopt, /*preloads=*/true), "park");
  EXPECT_FALSE(starter_.WantsToLearn());
}

TEST_F(WarmStarterTest, AnotherInstallationIsLearnedAnew) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("stale"), "");
  EXPECT_EQ(Ended(), "forget warm_stale");
  EXPECT_TRUE(starter_.WantsToLearn());
  EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"torch"}))), "warm_learned keep park");
}

TEST_F(WarmStarterTest, WhatIsRefusedIsLeftOut) {
  Begin(Modules({"torch", "spoilt"}));
  EXPECT_EQ(Said("refuse spoilt reads RANK when it is imported"), "warm_refused");
  EXPECT_EQ(Said("refuse spoilt starts a thread"), "");
  EXPECT_EQ(Ended(), "park");
  EXPECT_EQ(Said("ready 5"), "warm_ready keep");
  EXPECT_TRUE(starter_.learned().IsRefused("spoilt"));
  EXPECT_EQ(starter_.learned().module_count(), 1U);
}

TEST_F(WarmStarterTest, TooManyRefusalsEndIt) {
  Begin(Modules({"torch"}));
  for (int i = 0; i < WarmStarter::kRefusalsMax; ++i) {
    Said(absl::StrCat("refuse m", i, " why"));
    EXPECT_EQ(Ended(), "park");
  }
  Said("refuse last starts a thread");
  EXPECT_EQ(Ended(), "warm_off tell");
  EXPECT_EQ(starter_.state(), WarmStarter::State::kOff);
  EXPECT_EQ(Patience(), absl::ZeroDuration());
}

TEST_F(WarmStarterTest, DeathsInARowEndIt) {
  Begin(Modules({"torch"}));
  for (int i = 0; i < WarmStarter::kDeathsMax; ++i) EXPECT_EQ(Ended(), "warm_lost park");
  EXPECT_EQ(Ended(), "warm_off tell");
  EXPECT_EQ(Ended(), "");
}

TEST_F(WarmStarterTest, AStartThatWorkedForgetsDeaths) {
  Begin(Modules({"torch"}));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Ended(), "warm_lost park");
    Said("ready 5");
    starter_.OnStarted(/*parked=*/true);
  }
  starter_.OnStarted(/*parked=*/false);
  EXPECT_EQ(starter_.state(), WarmStarter::State::kReady);
}

TEST_F(WarmStarterTest, GivenUpItStaysGivenUp) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Done(starter_.GiveUp("no memory")), "warm_off tell");
  EXPECT_EQ(Done(starter_.GiveUp("no memory")), "");
  EXPECT_EQ(Said("ready 5"), "");
  EXPECT_EQ(Ended(), "");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
}

TEST_F(WarmStarterTest, WhatItDoesNotUnderstandIsIgnored) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("hello"), "");
  EXPECT_EQ(Said(""), "");
  EXPECT_EQ(starter_.state(), WarmStarter::State::kLoading);
}

}  // namespace
}  // namespace ddprun::launcher
