#include "launcher/stores/core/key_value_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

Instant At(int64_t seconds) { return Instant::FromNanoseconds(seconds * 1'000'000'000); }

// "3 ok", "3 = value", "3 #7", "3 found", "3 ABORTED": one answer as the tests compare it.
std::string Show(const StoreAnswer& answer) {
  const uint64_t call = answer.call.value();
  if (!answer.result.ok()) {
    return absl::StrCat(call, " ", absl::StatusCodeToString(answer.result.status().code()));
  }
  const StoreResult& result = *answer.result;
  if (result.value != nullptr) return absl::StrCat(call, " = ", *result.value);
  std::string values;
  for (const auto& value : result.values) absl::StrAppend(&values, " ", *value);
  if (!values.empty()) return absl::StrCat(call, " =", values);
  if (result.number != 0) return absl::StrCat(call, " #", result.number);
  return absl::StrCat(call, result.found ? " found" : " ok");
}

class KeyValueStoreTest : public ::testing::Test {
 protected:
  // Runs one operation as call 1, 2, 3, … and returns all answers, in their order.
  std::vector<std::string> Do(StoreOperation operation) {
    return Take(StoreCall{StoreCallId(++last_call_), std::move(operation)});
  }
  std::vector<std::string> Take(StoreEvent event) {
    last_answers_ = store_.Step(now_, std::move(event));
    store_.CheckInvariants();
    std::vector<std::string> shown;
    shown.reserve(last_answers_.size());
    for (const StoreAnswer& answer : last_answers_) shown.push_back(Show(answer));
    return shown;
  }
  std::string LastError() const {
    return std::string(last_answers_.back().result.status().message());
  }

  using Lines = std::vector<std::string>;
  KeyValueStore store_;
  Instant now_ = At(100);
  uint64_t last_call_ = 0;
  std::vector<StoreAnswer> last_answers_;
};

TEST_F(KeyValueStoreTest, SetThenGet) {
  EXPECT_EQ(Do(SetKey{"a", "one"}), Lines{"1 ok"});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{"2 = one"});
  EXPECT_EQ(Do(SetKey{"a", ""}), Lines{"3 ok"});
  EXPECT_EQ(Do(GetKey{"a", absl::ZeroDuration()}), Lines{"4 = "});
  EXPECT_EQ(store_.bytes(), 1U);
}

TEST_F(KeyValueStoreTest, GetWaitsForItsKey) {
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(GetKey{"b", absl::Seconds(9)}), Lines{});
  EXPECT_EQ(store_.NextDeadline(), At(105));
  EXPECT_EQ(Do(SetKey{"c", "x"}), Lines{"3 ok"});
  EXPECT_EQ(Do(SetKey{"a", "x"}), (Lines{"4 ok", "1 = x"}));
  EXPECT_EQ(store_.NextDeadline(), At(109));
}

TEST_F(KeyValueStoreTest, WaitersAreAnsweredOldestFirst) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Do(GetKey{"a", absl::Seconds(9 - i)}), Lines{});
  EXPECT_EQ(Do(SetKey{"a", "x"}), (Lines{"4 ok", "1 = x", "2 = x", "3 = x"}));
  EXPECT_TRUE(store_.NextDeadline().is_infinite());
}

TEST_F(KeyValueStoreTest, WaitNeedsAllKeysAtOneMoment) {
  EXPECT_EQ(Do(WaitForKeys{{"a", "b", "a"}, absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(SetKey{"a", "x"}), Lines{"2 ok"});
  EXPECT_EQ(Do(DeleteKey{"a"}), Lines{"3 found"});
  EXPECT_EQ(Do(SetKey{"b", "x"}), Lines{"4 ok"});
  EXPECT_EQ(Do(SetKey{"a", "x"}), (Lines{"5 ok", "1 ok"}));
  EXPECT_EQ(Do(WaitForKeys{{"b", "a"}, absl::ZeroDuration()}), Lines{"6 ok"});
  EXPECT_EQ(Do(WaitForKeys{}), Lines{"7 ok"});
}

TEST_F(KeyValueStoreTest, AddAndCompareAndSetWakeToo) {
  EXPECT_EQ(Do(GetKey{"n", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(AddToKey{"n", 3}), (Lines{"2 #3", "1 = 3"}));
  EXPECT_EQ(Do(GetKey{"c", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(CompareAndSetKey{"c", "", "x"}), (Lines{"4 = x", "3 = x"}));
}

TEST_F(KeyValueStoreTest, AGatherTellsAndLearnsInOneCall) {
  const Lines keys = {"0", "1", "2"};
  EXPECT_EQ(Do(GatherKeys{"1", "one", keys, absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(GatherKeys{"2", "two", keys, absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(GetKey{"1", absl::ZeroDuration()}), Lines{"3 = one"});
  EXPECT_EQ(Do(GatherKeys{"0", "zero", keys, absl::Seconds(5)}),
            (Lines{"4 = zero one two", "1 = zero one two", "2 = zero one two"}));
  EXPECT_EQ(Do(GatherKeys{"", "", {"2", "0"}, absl::ZeroDuration()}), Lines{"5 = two zero"});
  EXPECT_EQ(Do(GatherKeys{"", "", {"3"}, absl::ZeroDuration()}), Lines{"6 DEADLINE_EXCEEDED"});
  EXPECT_THAT(LastError(), HasSubstr("store gather: 1 of 1 keys, one is '3', not there"));
  EXPECT_EQ(Do(GatherKeys{"", "", {""}, absl::ZeroDuration()}), Lines{"7 INVALID_ARGUMENT"});
}

TEST_F(KeyValueStoreTest, AGatherIsNoLongerThanAValue) {
  const std::string half(StoreBounds{}.value_bytes / 2, 'x');
  EXPECT_EQ(Do(SetKey{"a", half}), Lines{"1 ok"});
  EXPECT_EQ(Do(GatherKeys{"b", half + "x", {"a", "b"}, absl::Seconds(5)}),
            Lines{"2 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("the values of 2 keys have more than 16777216 bytes"));
  EXPECT_EQ(Do(CountKeys{}), Lines{"3 #2"});
}

TEST_F(KeyValueStoreTest, TimeoutNamesWhatIsMissing) {
  EXPECT_EQ(Do(SetKey{"there", "x"}), Lines{"1 ok"});
  EXPECT_EQ(Do(GetKey{"gone", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(WaitForKeys{{"there", "p", "q"}, absl::Seconds(6)}), Lines{});
  now_ = At(105);
  EXPECT_EQ(Take(StoreTimerDue{}), Lines{"2 DEADLINE_EXCEEDED"});
  EXPECT_EQ(
      LastError(),
      "store get: key 'gone' not there within 5s (keys in the store: 1); look for the rank that "
      "sets it");
  now_ = At(106);
  EXPECT_EQ(Take(StoreTimerDue{}), Lines{"3 DEADLINE_EXCEEDED"});
  EXPECT_THAT(LastError(), HasSubstr("2 of 3 keys, one is 'p', not there within 6s"));
}

TEST_F(KeyValueStoreTest, NothingIsExpiredBeforeItsTime) {
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{});
  now_ = At(105) - absl::Nanoseconds(1);
  EXPECT_EQ(Take(StoreTimerDue{}), Lines{});
  EXPECT_EQ(store_.waiter_count(), 1U);
}

TEST_F(KeyValueStoreTest, ZeroAndNegativeTimeoutsAnswerAtOnce) {
  EXPECT_EQ(Do(GetKey{"a", absl::ZeroDuration()}), Lines{"1 DEADLINE_EXCEEDED"});
  EXPECT_EQ(Do(GetKey{"a", -absl::InfiniteDuration()}), Lines{"2 DEADLINE_EXCEEDED"});
  EXPECT_EQ(Do(GetKey{"a", absl::InfiniteDuration()}), Lines{});
  EXPECT_EQ(store_.waiter_count(), 1U);
}

// The loop was late: the key came after the deadline, but before the timer was taken.
TEST_F(KeyValueStoreTest, LateSetStillCounts) {
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(GetKey{"b", absl::Seconds(5)}), Lines{});
  now_ = At(107);
  EXPECT_EQ(Do(SetKey{"a", "x"}), (Lines{"3 ok", "1 = x", "2 DEADLINE_EXCEEDED"}));
}

TEST_F(KeyValueStoreTest, AddCountsInDecimal) {
  EXPECT_EQ(Do(AddToKey{"n", 5}), Lines{"1 #5"});
  EXPECT_EQ(Do(AddToKey{"n", -7}), Lines{"2 #-2"});
  EXPECT_EQ(Do(GetKey{"n", absl::ZeroDuration()}), Lines{"3 = -2"});
  EXPECT_EQ(Do(AddToKey{"zero", 0}), Lines{"4 ok"});
  EXPECT_EQ(Do(GetKey{"zero", absl::ZeroDuration()}), Lines{"5 = 0"});
}

TEST_F(KeyValueStoreTest, AddRefusesWhatIsNoNumber) {
  EXPECT_EQ(Do(SetKey{"text", "12 apples"}), Lines{"1 ok"});
  EXPECT_EQ(Do(AddToKey{"text", 1}), Lines{"2 INVALID_ARGUMENT"});
  EXPECT_THAT(LastError(), HasSubstr("'12 apples' is no decimal number"));
  EXPECT_EQ(Do(AddToKey{"big", INT64_MAX}), Lines{absl::StrCat("3 #", INT64_MAX)});
  EXPECT_EQ(Do(AddToKey{"big", 1}), Lines{"4 INVALID_ARGUMENT"});
  EXPECT_EQ(Do(GetKey{"big", absl::ZeroDuration()}), Lines{absl::StrCat("5 = ", INT64_MAX)});
}

TEST_F(KeyValueStoreTest, CheckDeleteCount) {
  EXPECT_EQ(Do(SetKey{"a", "x"}), Lines{"1 ok"});
  EXPECT_EQ(Do(SetKey{"b", "x"}), Lines{"2 ok"});
  EXPECT_EQ(Do(CheckKeys{{"a", "b"}}), Lines{"3 found"});
  EXPECT_EQ(Do(CheckKeys{{"a", "c"}}), Lines{"4 ok"});
  EXPECT_EQ(Do(CheckKeys{}), Lines{"5 found"});
  EXPECT_EQ(Do(CountKeys{}), Lines{"6 #2"});
  EXPECT_EQ(Do(DeleteKey{"a"}), Lines{"7 found"});
  EXPECT_EQ(Do(DeleteKey{"a"}), Lines{"8 ok"});
  EXPECT_EQ(Do(CountKeys{}), Lines{"9 #1"});
  EXPECT_EQ(store_.bytes(), 2U);
}

// The table of TCPStore's compareSet.
TEST_F(KeyValueStoreTest, CompareAndSet) {
  EXPECT_EQ(Do(CompareAndSetKey{"k", "old", "new"}), Lines{"1 = old"});
  EXPECT_EQ(Do(CheckKeys{{"k"}}), Lines{"2 ok"});
  EXPECT_EQ(Do(CompareAndSetKey{"k", "", "first"}), Lines{"3 = first"});
  EXPECT_EQ(Do(CompareAndSetKey{"k", "other", "second"}), Lines{"4 = first"});
  EXPECT_EQ(Do(CompareAndSetKey{"k", "", "second"}), Lines{"5 = first"});
  EXPECT_EQ(Do(CompareAndSetKey{"k", "first", "second"}), Lines{"6 = second"});
  EXPECT_EQ(Do(GetKey{"k", absl::ZeroDuration()}), Lines{"7 = second"});
}

TEST_F(KeyValueStoreTest, CancelledCallGetsNoAnswer) {
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Take(StoreCallCancelled{StoreCallId(1)}), Lines{});
  EXPECT_EQ(Take(StoreCallCancelled{StoreCallId(77)}), Lines{});
  EXPECT_EQ(Do(SetKey{"a", "x"}), (Lines{"3 ok", "2 = x"}));
}

TEST_F(KeyValueStoreTest, CloseAbortsWaitersAndAllLaterCalls) {
  EXPECT_EQ(Do(SetKey{"a", "x"}), Lines{"1 ok"});
  EXPECT_EQ(Do(GetKey{"b", absl::Seconds(5)}), Lines{});
  EXPECT_EQ(Do(WaitForKeys{{"b", "c"}, absl::Seconds(3)}), Lines{});
  EXPECT_EQ(Take(StoreClosed{"generation 3 is over"}), (Lines{"2 ABORTED", "3 ABORTED"}));
  EXPECT_EQ(LastError(), "generation 3 is over");
  EXPECT_EQ(Do(GetKey{"a", absl::ZeroDuration()}), Lines{"4 ABORTED"});
  EXPECT_EQ(Take(StoreClosed{"once more"}), Lines{});
  EXPECT_EQ(store_.bytes(), 0U);
  EXPECT_TRUE(store_.NextDeadline().is_infinite());
}

TEST_F(KeyValueStoreTest, EmptyKeysAreMalformed) {
  const std::vector<std::pair<std::string, StoreOperation>> all = {
      {"set", SetKey{"", "x"}},
      {"get", GetKey{"", absl::Seconds(1)}},
      {"wait", WaitForKeys{{"a", ""}, absl::Seconds(1)}},
      {"add", AddToKey{"", 1}},
      {"check", CheckKeys{{""}}},
      {"delete", DeleteKey{""}},
      {"compare_set", CompareAndSetKey{"", "", "x"}}};
  for (const auto& [name, operation] : all) {
    const Lines answers = Do(operation);
    EXPECT_EQ(answers, Lines{absl::StrCat(last_call_, " INVALID_ARGUMENT")}) << name;
    EXPECT_EQ(LastError(), absl::StrCat("store ", name, ": the key is empty; name one"));
  }
  EXPECT_EQ(store_.key_count(), 0U);
}

class BoundsTest : public KeyValueStoreTest {
 protected:
  BoundsTest() {
    store_ = KeyValueStore(StoreBounds{.keys = 3,
                                       .key_bytes = 4,
                                       .value_bytes = 8,
                                       .bytes = 20,
                                       .keys_per_call = 2,
                                       .waiters = 2});
  }
};

TEST_F(BoundsTest, KeyAndValueBytes) {
  EXPECT_EQ(Do(SetKey{"1234", "12345678"}), Lines{"1 ok"});
  EXPECT_EQ(Do(SetKey{"12345", "1"}), Lines{"2 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("key '12345' is longer than 4 bytes"));
  EXPECT_EQ(Do(SetKey{"1", "123456789"}), Lines{"3 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("store set '1': the value has 9 bytes, at most 8"));
  EXPECT_EQ(Do(CompareAndSetKey{"1", "", "123456789"}), Lines{"4 RESOURCE_EXHAUSTED"});
  EXPECT_EQ(Do(CheckKeys{{"1"}}), Lines{"5 ok"});
}

TEST_F(BoundsTest, NumberOfKeys) {
  for (const char* key : {"a", "b", "c"}) Do(SetKey{key, ""});
  EXPECT_EQ(Do(SetKey{"d", ""}), Lines{"4 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("full with 3 keys"));
  EXPECT_EQ(Do(AddToKey{"d", 1}), Lines{"5 RESOURCE_EXHAUSTED"});
  EXPECT_EQ(Do(SetKey{"a", "new"}), Lines{"6 ok"});
  EXPECT_EQ(Do(DeleteKey{"b"}), Lines{"7 found"});
  EXPECT_EQ(Do(SetKey{"d", ""}), Lines{"8 ok"});
}

TEST_F(BoundsTest, BytesInAll) {
  EXPECT_EQ(Do(SetKey{"a", "12345678"}), Lines{"1 ok"});
  EXPECT_EQ(Do(SetKey{"b", "12345678"}), Lines{"2 ok"});
  EXPECT_EQ(Do(SetKey{"c", "12"}), Lines{"3 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("would hold 21 bytes, at most 20"));
  EXPECT_EQ(Do(SetKey{"b", "87654321"}), Lines{"4 ok"});  // in place of the old one
  EXPECT_EQ(Do(GetKey{"123", absl::Seconds(1)}), Lines{"5 RESOURCE_EXHAUSTED"});
  EXPECT_EQ(Do(GetKey{"12", absl::Seconds(1)}), Lines{});
  EXPECT_EQ(store_.bytes(), 20U);
}

TEST_F(BoundsTest, WaitersAndKeysPerCall) {
  EXPECT_EQ(Do(WaitForKeys{{"a", "b", "c"}, absl::Seconds(1)}), Lines{"1 RESOURCE_EXHAUSTED"});
  EXPECT_EQ(Do(CheckKeys{{"a", "b", "c"}}), Lines{"2 RESOURCE_EXHAUSTED"});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(1)}), Lines{});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(1)}), Lines{});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(1)}), Lines{"5 RESOURCE_EXHAUSTED"});
  EXPECT_THAT(LastError(), HasSubstr("2 calls wait"));
  EXPECT_EQ(Take(StoreCallCancelled{StoreCallId(3)}), Lines{});
  EXPECT_EQ(Do(GetKey{"a", absl::Seconds(1)}), Lines{});
}

TEST_F(KeyValueStoreTest, MessagesShowKeysPrintableAndShort) {
  Do(GetKey{"a\n\x1b", absl::ZeroDuration()});
  EXPECT_THAT(LastError(), HasSubstr("'a\\n\\x1b'"));
  Do(GetKey{std::string(4096, 'k'), absl::ZeroDuration()});
  EXPECT_THAT(LastError(), HasSubstr("kkk…' not there"));
  EXPECT_LT(LastError().size(), 300U);
}

}  // namespace
}  // namespace ddprun::launcher
