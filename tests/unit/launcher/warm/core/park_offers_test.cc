#include "launcher/warm/core/warm_starter.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ParkOffers, AWorkerThatHasStartedIsKnownWhenItSaysSo) {
  ParkOffers offers;
  offers.OnPrepared(1);
  EXPECT_EQ(offers.OnStarted(1, 4711), std::nullopt);
  EXPECT_EQ(offers.OnOffered(1), 4711);
  EXPECT_EQ(offers.OnOffered(1), 4711) << "it may say so again";
}

TEST(ParkOffers, OneThatIsHeardBeforeItsStartIsKnownThen) {
  ParkOffers offers;
  offers.OnPrepared(0);
  offers.OnPrepared(1);
  EXPECT_EQ(offers.OnOffered(1), std::nullopt);
  EXPECT_EQ(offers.OnStarted(0, 4710), std::nullopt);
  EXPECT_EQ(offers.OnStarted(1, 4711), 4711);
}

TEST(ParkOffers, WhatTheOneBeforeItSaidDoesNotCountForTheNext) {
  ParkOffers offers;
  offers.OnPrepared(0);
  offers.OnOffered(0);
  offers.OnPrepared(0);
  EXPECT_EQ(offers.OnStarted(0, 4712), std::nullopt);
  offers.OnPrepared(0);
  EXPECT_EQ(offers.OnOffered(0), std::nullopt) << "pid 4712 is no longer that worker";
}

}  // namespace
}  // namespace ddprun::launcher
