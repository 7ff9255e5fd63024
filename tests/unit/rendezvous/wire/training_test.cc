#include "rendezvous/wire/training.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

TEST(TrainingReport, GoesThereAndBack) {
  for (const TrainingReport& report :
       {TrainingReport(), TrainingReport{.loss = 0.25, .loss_workers = 8},
        TrainingReport{.samples_per_second = 0},
        TrainingReport{.loss = -1, .loss_workers = 1, .samples_per_second = 4e6}}) {
    EXPECT_EQ(FromProto(ToProto(report)), report);
  }
  EXPECT_TRUE(std::isnan(*FromProto(ToProto({.loss = std::nan(""), .loss_workers = 1})).loss));
}

TEST(TrainingReport, WhatCannotBeIsLeftOut) {
  v1::TrainingStatus proto;
  proto.set_loss(1);
  EXPECT_EQ(FromProto(proto), TrainingReport()) << "of no worker";
  proto.set_loss_workers(kWorkersPerNodeMax + 1);
  EXPECT_EQ(FromProto(proto), TrainingReport());
  for (const double rate : {-1.0, std::nan(""), HUGE_VAL}) {
    proto.set_samples_per_second(rate);
    EXPECT_EQ(FromProto(proto).samples_per_second, std::nullopt) << rate;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
