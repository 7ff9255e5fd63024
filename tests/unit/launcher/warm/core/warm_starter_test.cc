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
  std::string operator()(const Unpark&) const { return "unpark"; }
  std::string operator()(const Keep&) const { return "keep"; }
  std::string operator()(const Forget&) const { return "forget"; }
  std::string operator()(const WarmNote& note) const { return note.event; }
  std::string operator()(const NotifyOnce&) const { return "notify"; }
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
  std::string Short() { return Done(starter_.OnShort("memory is short")); }
  std::string Empty() { return Done(starter_.OnEmpty(now_)); }
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

TEST_F(WarmStarterTest, WhatAJobWithModulesByHandHasKeptIsNothingLearned) {
  Learned kept;
  kept.refused.push_back({"spoilt", "starts a thread"});
  EXPECT_EQ(Begin(kept), "");
  EXPECT_TRUE(starter_.WantsToLearn());
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
  EXPECT_EQ(Said("refuse spoilt reads RANK when it is imported"), "warm_refused keep");
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
  EXPECT_EQ(Ended(), "warm_off notify");
  EXPECT_EQ(starter_.state(), WarmStarter::State::kOff);
  EXPECT_EQ(Patience(), absl::ZeroDuration());
}

TEST_F(WarmStarterTest, DeathsInARowEndIt) {
  Begin(Modules({"torch"}));
  for (int i = 0; i < WarmStarter::kDeathsMax; ++i) EXPECT_EQ(Ended(), "warm_lost park");
  EXPECT_EQ(Ended(), "warm_off notify");
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
  EXPECT_EQ(Done(starter_.GiveUp("no memory")), "warm_off notify unpark");
  EXPECT_EQ(Done(starter_.GiveUp("no memory")), "");
  EXPECT_EQ(Said("ready 5"), "");
  EXPECT_EQ(Ended(), "");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
}

TEST_F(WarmStarterTest, WhatAnotherNodeHasLearnedCountsWhereNothingIsKnown) {
  Begin(std::nullopt);
  EXPECT_EQ(Done(starter_.OnKept(now_, Modules({"torch"}))), "warm_kept park");
  EXPECT_EQ(Done(starter_.OnKept(now_, Modules({"numpy"}))), "");
  EXPECT_EQ(starter_.learned().steps[0].text, "torch");
}

TEST_F(WarmStarterTest, OfAnotherInstallationItDoesNotCount) {
  Learned kept = Modules({"torch"});
  kept.signature = "of another node";
  Begin(kept);
  Said("stale");
  EXPECT_EQ(Ended(), "forget warm_stale");
  EXPECT_EQ(Done(starter_.OnKept(now_, kept)), "");
  kept.signature = "ours";
  EXPECT_EQ(Done(starter_.OnKept(now_, kept)), "warm_kept park");
}

TEST_F(WarmStarterTest, ItGoesFirstWhenMemoryIsShortAndComesBackWhenWorkersHaveEnded) {
  Begin(Modules({"torch"}));
  Said("ready 5 1000");
  EXPECT_EQ(starter_.bytes_held(), 1000U << 10);
  EXPECT_EQ(Short(), "warm_short notify unpark");
  EXPECT_EQ(Short(), "");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(starter_.bytes_held(), 0U);
  EXPECT_EQ(starter_.WhyCold(), "memory is short");
  EXPECT_EQ(Ended(), "");
  EXPECT_EQ(Empty(), "park");
  EXPECT_EQ(Said("ready 5 1000"), "warm_ready keep");
  EXPECT_EQ(Empty(), "");
  EXPECT_EQ(Short(), "warm_short unpark") << "the user knows";
}

TEST_F(WarmStarterTest, TheNextOneIsParkedWhenTheLastOneIsGone) {
  Begin(Modules({"torch"}));
  Short();
  EXPECT_EQ(Empty(), "") << "it is on its way out";
  EXPECT_EQ(Ended(), "park");
  EXPECT_EQ(Said("ready 5 1000"), "warm_ready keep");
}

TEST_F(WarmStarterTest, WhatCouldNotBeParkedForMemoryIsTriedAgain) {
  Begin(Modules({"torch"}));
  starter_.OnNotParked();
  EXPECT_EQ(Short(), "warm_short notify") << "nothing is there to be ended";
  EXPECT_EQ(Empty(), "park");
}

TEST_F(WarmStarterTest, OneThatHoldsMoreThanItMayIsEnded) {
  starter_ = WarmStarter({.bytes_max = 1 << 20});
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("ready 5 1025"), "warm_off notify unpark");
  EXPECT_EQ(starter_.WhyCold(),
            "the interpreter that has imported what they import holds 1.0 MiB, and --warm_memory "
            "allows 1.0 MiB");
  EXPECT_EQ(Ended(), "");
}

TEST_F(WarmStarterTest, ImportsThatStandOutAreKept) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("took torch 9100"), "");
  EXPECT_EQ(Said("ready 9200 1000"), "warm_ready keep");
  ASSERT_EQ(starter_.learned().slow.size(), 1U);
  EXPECT_EQ(starter_.learned().slow[0].milliseconds, 9100U);
}

TEST_F(WarmStarterTest, OneThatHoldsWhatItMayStays) {
  starter_ = WarmStarter({.bytes_max = 1 << 20});
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("ready 5 1024"), "warm_ready keep");
}

TEST_F(WarmStarterTest, WhatItDoesNotUnderstandIsIgnored) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("hello"), "");
  EXPECT_EQ(Said(""), "");
  EXPECT_EQ(starter_.state(), WarmStarter::State::kLoading);
}

// A fork is the reason of a crash where a start without one, of the same worker, goes on.
TEST_F(WarmStarterTest, AWorkerThatCrashesSoonAfterItsForkIsStartedColdOnce) {
  Begin(Modules({"torch"}));
  Said("ready 5");
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/true, /*crashed=*/true, absl::Seconds(2))),
            "warm_suspected notify");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/false, /*crashed=*/true, absl::Seconds(20))), "")
      << "it was not the fork";
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
}

TEST_F(WarmStarterTest, WhereItWasTheForkTheyStayColdAndThatIsKept) {
  Begin(Modules({"torch"}));
  Said("ready 5");
  starter_.OnFirstEnd(/*warm=*/true, /*crashed=*/true, absl::Seconds(2));
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/false, /*crashed=*/false, absl::Seconds(20))), "")
      << "it was ended, by whatever, before it was as far";
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/false, /*crashed=*/false, WarmStarter::kLong)),
            "keep warm_off notify unpark");
  EXPECT_EQ(starter_.learned().unfit,
            "one that was forked crashed soon, and the next one, which was not, did not");
}

TEST_F(WarmStarterTest, OtherEndsSayNothingOfTheFork) {
  Begin(Modules({"torch"}));
  Said("ready 5");
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/true, /*crashed=*/false, absl::Seconds(2))), "");
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/true, /*crashed=*/true, absl::Seconds(20))), "");
  EXPECT_EQ(Done(starter_.OnFirstEnd(/*warm=*/false, /*crashed=*/true, absl::Seconds(2))), "");
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
}

TEST_F(WarmStarterTest, AnInterpreterThatCanNotBeForkedIsNotTriedAgain) {
  Begin(Modules({"torch"}));
  EXPECT_EQ(Said("cannot a child that used the imported libraries did not come to an end"),
            "keep warm_off notify unpark");
}

// Nobody has asked for warm starts.
class UnaskedTest : public WarmStarterTest {
 protected:
  UnaskedTest() { starter_ = WarmStarter({.unasked = true}); }

  static Learned Kept() {
    Learned kept = Modules({"torch"});
    kept.imports_milliseconds = 2000;
    return kept;
  }
  // What is loaded in a job whose interpreter needs 2 s, as an earlier job has found.
  void Load() {
    Begin(Kept());
    EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"torch"}))), "warm_learned keep park");
  }
  std::string Start() { return Done(starter_.OnStart(now_)); }
};

TEST_F(UnaskedTest, WhatWasKeptIsNoReasonToImportBeforeTheFirstStart) {
  EXPECT_EQ(Begin(Kept()), "");
  EXPECT_EQ(Start(), "");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_TRUE(starter_.WantsToLearn());
}

TEST_F(UnaskedTest, AStartThatIsQuickerAloneHasTheImportsEnded) {
  Load();
  now_ = now_ + absl::Milliseconds(500);
  EXPECT_EQ(Start(), "warm_aside unpark");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(starter_.WhyCold(), "imports of their own were quicker");
  EXPECT_FALSE(starter_.WantsToLearn()) << "it is known";
  EXPECT_EQ(Ended(), "");
}

// Each generation is killed 5 s after its start, 2 s after imports of 4 s would have begun.
TEST_F(UnaskedTest, FaultsThatComeSoonerThanImportsTakeCostOneLoad) {
  Start();
  now_ = now_ + absl::Seconds(3);
  Begin(std::nullopt);
  EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"torch"}))), "warm_learned keep park");
  now_ = now_ + absl::Seconds(2);
  EXPECT_EQ(Start(), "warm_aside unpark");
  EXPECT_EQ(Ended(), "");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(starter_.Deadline(), now_ + absl::Milliseconds(7500));
    now_ = now_ + absl::Seconds(5);
    EXPECT_EQ(Done(starter_.OnTimer(now_)), "") << "it is not time yet";
    EXPECT_EQ(Start(), "") << "nothing was begun, so nothing is thrown away";
  }
  now_ = starter_.Deadline();
  EXPECT_EQ(Done(starter_.OnTimer(now_)), "park") << "a generation that lives on";
  EXPECT_EQ(Said("ready 4000"), "warm_ready keep");
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
}

TEST_F(UnaskedTest, AGenerationThatLivesForAMinuteHasImportsBegin) {
  Start();
  Begin(std::nullopt);
  Done(starter_.OnLearned(now_, Modules({"torch"})));
  now_ = now_ + absl::Hours(1);  // they never end
  EXPECT_EQ(Start(), "warm_aside unpark");
  EXPECT_EQ(starter_.Deadline(), now_ + WarmStarter::kHoldMax);
  // The one that was ended is still ending.
  now_ = starter_.Deadline();
  EXPECT_EQ(Done(starter_.OnTimer(now_)), "");
  EXPECT_EQ(Ended(), "park");
}

TEST_F(UnaskedTest, AStartWaitsForImportsThatAreAlmostThere) {
  Load();
  now_ = now_ + absl::Milliseconds(1500);
  EXPECT_EQ(Start(), "");
  EXPECT_EQ(Patience(), absl::Milliseconds(1500));
  now_ = now_ + absl::Milliseconds(1600);
  EXPECT_EQ(Start(), "warm_aside unpark") << "they take longer than they did";
}

TEST_F(UnaskedTest, NobodyWaitsForImportsOfWhichNothingIsKnown) {
  Begin(std::nullopt);
  Done(starter_.OnLearned(now_, Modules({"torch"})));
  now_ = now_ + absl::Seconds(1);
  EXPECT_EQ(Start(), "warm_aside unpark");
  starter_ = WarmStarter({.unasked = true, .crowded = true});
  Load();
  now_ = now_ + absl::Milliseconds(1500);
  EXPECT_EQ(Start(), "warm_aside unpark") << "workers had all processors";
}

TEST_F(UnaskedTest, OneThatIsReadyIsUsed) {
  Load();
  Said("ready 1900");
  EXPECT_EQ(Start(), "");
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
}

TEST_F(UnaskedTest, WhatWasRefusedStaysLeftOutWhenItIsLearnedAnew) {
  Learned kept = Kept();
  kept.refused.push_back({"spoilt", "reads RANK when it is imported"});
  Begin(kept);
  Done(starter_.OnLearned(now_, Modules({"torch", "spoilt"})));
  EXPECT_TRUE(starter_.learned().IsRefused("spoilt"));
  EXPECT_EQ(starter_.learned().imports_milliseconds, 2000U);
}

TEST_F(UnaskedTest, WhatIsKnownAgainstItCountsForTheSameInstallation) {
  Learned kept = Kept();
  kept.unfit = "one that was forked crashed soon";
  Begin(kept);
  EXPECT_EQ(Done(starter_.OnLearned(now_, Modules({"torch"}))), "warm_off notify");
  starter_ = WarmStarter({.unasked = true});
  Begin(kept);
  EXPECT_EQ(Done(starter_.OnKept(now_, kept)), "");
  Learned learned = Modules({"torch"});
  learned.signature = "another installation";
  EXPECT_EQ(Done(starter_.OnLearned(now_, learned)), "warm_learned keep park");
}

TEST_F(UnaskedTest, ItGivesUpSooner) {
  Load();
  for (int i = 0; i < WarmStarter::kRefusalsUnaskedMax; ++i) {
    Said(absl::StrCat("refuse m", i, " why"));
    EXPECT_EQ(Ended(), "park");
  }
  Said("refuse last starts a thread");
  EXPECT_EQ(Ended(), "warm_off notify");
}

// The workers' own program, which has nothing to learn but that it can be started ahead.
class ProgramStarterTest : public WarmStarterTest {
 protected:
  ProgramStarterTest() { starter_ = WarmStarter({.kind = WarmStarter::Kind::kProgram}); }

  static Learned Program(std::string signature) {
    Learned learned;
    learned.signature = std::move(signature);
    return learned;
  }
};

TEST_F(ProgramStarterTest, ItIsParkedWhenAWorkerHasSaidThatItCan) {
  EXPECT_EQ(Begin(std::nullopt), "");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(starter_.WhyCold(), "their program has not said that it can be started ahead");
  EXPECT_EQ(Done(starter_.OnLearned(now_, Program("one"))), "warm_learned keep park");
  EXPECT_EQ(starter_.WhyCold(), "the program that is started ahead was not ready in time");
  EXPECT_EQ(Said("ready 400 180000"), "warm_ready keep");
  EXPECT_EQ(Patience(), WarmStarter::kForkPatience);
  EXPECT_EQ(starter_.import_time(), absl::Milliseconds(400));
  EXPECT_EQ(starter_.WhyCold(), "the program that was started ahead did not become a worker");
}

TEST_F(ProgramStarterTest, ItsNextJobBeginsWithIt) { EXPECT_EQ(Begin(Program("one")), "park"); }

TEST_F(ProgramStarterTest, OneThatCanNotAfterAllIsNotTriedAgain) {
  Begin(Program("one"));
  EXPECT_EQ(Said("cannot a library of it starts a thread"), "warm_off notify unpark");
  EXPECT_EQ(starter_.WhyCold(),
            "their program can't be started ahead: a library of it starts a thread");
  EXPECT_EQ(Ended(), "");
  EXPECT_EQ(Done(starter_.OnLearned(now_, Program("one"))), "");
}

TEST_F(ProgramStarterTest, OneThatWasBuiltAnewHasToSaySoAgain) {
  Begin(Program("one"));
  Said("ready 400 180000");
  EXPECT_EQ(Said("old"), "warm_old");
  EXPECT_EQ(Ended(), "park");
  EXPECT_EQ(Done(starter_.OnOtherProgram()), "forget warm_stale");
  EXPECT_EQ(Patience(), absl::ZeroDuration());
  EXPECT_EQ(Done(starter_.OnLearned(now_, Program("two"))), "warm_learned keep park");
}

TEST_F(ProgramStarterTest, ItsDeathsAreBornAndCounted) {
  Begin(Program("one"));
  for (int death = 0; death < WarmStarter::kDeathsMax; ++death)
    EXPECT_EQ(Ended(), "warm_lost park");
  EXPECT_EQ(Ended(), "warm_off notify");
  EXPECT_EQ(starter_.WhyCold(),
            "the program that waits to become workers was killed by SIGKILL 4 times");
}

TEST_F(ProgramStarterTest, WhatItMayHoldIsBounded) {
  starter_ = WarmStarter({.bytes_max = 1 << 20, .kind = WarmStarter::Kind::kProgram});
  Begin(Program("one"));
  EXPECT_EQ(Said("ready 5 1025"), "warm_off notify unpark");
  EXPECT_EQ(starter_.WhyCold(),
            "their program, started ahead, holds 1.0 MiB, and --warm_memory allows 1.0 MiB");
}

}  // namespace
}  // namespace ddprun::launcher
