#include "rendezvous/server/call_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

// How many calls are open, and which peer has them.
namespace ddprun::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = OpenStream::Kind;

class FakeStream final : public OpenStream {
 public:
  void FinishNow(const absl::Status& /*status*/) override {}
};

// gRPC's side of a call that only has an end.
class FakeCall final : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override {}
};

// The n-th connection of an address.
Caller CallerFrom(int address, int connection, bool trusted = false) {
  return CallerOf(absl::StrCat("ipv4:10.0.", address / 250, ".", address % 250, ":", connection),
                  trusted);
}

class CallRegistryTest : public ::testing::Test {
 protected:
  ~CallRegistryTest() override {
    registry_.Close();
    for (const auto& stream : streams_) registry_.Remove(stream.get());
    EXPECT_TRUE(registry_.WaitUntilDone(absl::ZeroDuration()));
  }
  absl::Status Open(Kind kind, const Caller& caller) {
    streams_.push_back(std::make_shared<FakeStream>());
    return registry_.Add(kind, streams_.back(), caller);
  }

  std::vector<std::string> floods_;
  CallRegistry registry_{[this](const std::string& peer) { floods_.push_back(peer); }};
  std::vector<std::shared_ptr<FakeStream>> streams_;
};

TEST_F(CallRegistryTest, AConnectionOfAStrangerHasFewCalls) {
  for (size_t i = 0; i < kStrangersCallsMax; ++i) {
    EXPECT_TRUE(Open(Kind::kAgent, CallerFrom(1, 1)).ok());
  }
  EXPECT_THAT(floods_, ElementsAre());
  const absl::Status status = Open(Kind::kAgent, CallerFrom(1, 1));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status << ": worth another try";
  EXPECT_THAT(floods_, ElementsAre("ipv4:10.0.0.1:1"));
  EXPECT_TRUE(Open(Kind::kAgent, CallerFrom(1, 2)).ok()) << "another connection";
  registry_.Known(streams_.front().get());
  EXPECT_TRUE(Open(Kind::kAgent, CallerFrom(1, 1)).ok()) << "a member's isn't counted";
  registry_.Remove(streams_[1].get());
  streams_.erase(streams_.begin() + 1);
  EXPECT_TRUE(Open(Kind::kAgent, CallerFrom(1, 1)).ok()) << "one is gone";
  EXPECT_FALSE(Open(Kind::kWatch, CallerFrom(1, 1)).ok()) << "of any kind";
}

TEST_F(CallRegistryTest, WhoDoesNotComeOverTcpIsNoStranger) {
  for (size_t i = 0; i < 2 * kWatchesMax / 2; ++i) {
    EXPECT_TRUE(Open(Kind::kWatch, CallerOf("unix:", /*trusted=*/false)).ok()) << i;
  }
}

// Strangers with as many connections as the door lets in, and as many streams on each as they may.
TEST_F(CallRegistryTest, AllStrangersTogetherLeaveAllPlacesToMembers) {
  for (size_t i = 0; i < kStrangersMax * kStrangersCallsMax; ++i) {
    ASSERT_TRUE(Open(Kind::kAgent, CallerFrom(1, static_cast<int>(i / kStrangersCallsMax))).ok());
  }
  for (size_t i = 0; i < 6 * size_t{kNodesMax}; ++i) {
    ASSERT_TRUE(Open(Kind::kAgent, CallerFrom(2, static_cast<int>(i), /*trusted=*/true)).ok()) << i;
  }
  const absl::Status beyond = Open(Kind::kAgent, CallerFrom(3, 1));
  EXPECT_TRUE(absl::IsUnavailable(beyond)) << beyond;
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("open calls of this kind, its most"));
}

TEST_F(CallRegistryTest, OneAddressHasAQuarterOfTheWatchesAndStrangersHalf) {
  size_t open = 0;
  const auto open_all = [&](int address) {
    size_t here = 0;
    while (Open(Kind::kWatch, CallerFrom(address, static_cast<int>(here))).ok()) ++here;
    open += here;
    return here;
  };
  EXPECT_EQ(open_all(1), kWatchesMax / 4);
  EXPECT_EQ(open_all(2), kWatchesMax / 4);
  EXPECT_EQ(open_all(3), 0U);
  const absl::Status status = Open(Kind::kWatch, CallerFrom(3, 1));
  EXPECT_THAT(status.ToString(), HasSubstr("--token_file")) << "what helps";
  while (Open(Kind::kWatch, CallerFrom(3, 1, /*trusted=*/true)).ok()) ++open;
  EXPECT_EQ(open, kWatchesMax);
}

TEST_F(CallRegistryTest, SoItIsWithCallsThatWaitForTheLoop) {
  std::vector<std::unique_ptr<FakeCall>> calls;
  std::vector<uint64_t> numbers;
  const auto open = [&](const Caller& caller) {
    calls.push_back(std::make_unique<FakeCall>());
    const uint64_t number = registry_.Add(calls.back().get(), caller);
    if (number != 0) numbers.push_back(number);
    return number != 0;
  };
  for (size_t i = 0; i < kUnaryCallsMax / 4; ++i)
    ASSERT_TRUE(open(CallerFrom(1, static_cast<int>(i))));
  EXPECT_FALSE(open(CallerFrom(1, 9999)));
  EXPECT_TRUE(open(CallerFrom(2, 1)));
  while (open(CallerFrom(1, 1, /*trusted=*/true))) {
  }
  EXPECT_EQ(numbers.size(), kUnaryCallsMax);
  for (const uint64_t number : numbers) EXPECT_NE(registry_.Take(number), nullptr);
  EXPECT_EQ(registry_.Take(numbers.front()), nullptr) << "it was answered";
  EXPECT_TRUE(open(CallerFrom(1, 9999))) << "all were counted down";
}

TEST_F(CallRegistryTest, AfterTheEndNobodyIsAdmitted) {
  registry_.Close();
  EXPECT_TRUE(absl::IsUnavailable(Open(Kind::kAgent, CallerFrom(1, 1, /*trusted=*/true))));
}

TEST_F(CallRegistryTest, OnlyStrangersAreCharged) {
  int answered = 0;
  while (answered < 10'000 && registry_.Charge(CallerFrom(1, answered))) ++answered;
  EXPECT_GE(answered, CallBudget::kBurst);
  EXPECT_LT(answered, 10'000);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(registry_.Charge(CallerFrom(1, 1, /*trusted=*/true)));
    EXPECT_TRUE(registry_.Charge(CallerOf("inproc", /*trusted=*/false)));
  }
  EXPECT_TRUE(registry_.Charge(CallerFrom(2, 1)));
}

}  // namespace
}  // namespace ddprun::rendezvous
