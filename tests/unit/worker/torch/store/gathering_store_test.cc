#include "worker/torch/store/gathering_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "absl/strings/str_cat.h"
#include "worker/torch/store/meeting.h"

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kShort = absl::Milliseconds(20);
constexpr absl::Duration kLong = absl::Seconds(100);

// Counts what it is asked.
class CountingStore : public c10d::HashStore, public GatheringStore {
 public:
  std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                  const std::vector<std::string>& keys,
                                  absl::Duration timeout) override {
    ++gathers;
    patience = timeout;
    if (!key.empty()) c10d::HashStore::set(key, {value.begin(), value.end()});
    c10d::HashStore::wait(keys, absl::ToChronoMilliseconds(timeout));
    std::vector<std::string> values;
    for (const std::string& one : keys) {
      const std::vector<uint8_t> bytes = c10d::HashStore::get(one);
      values.emplace_back(bytes.begin(), bytes.end());
    }
    return values;
  }
  using c10d::HashStore::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    ++others;
    c10d::HashStore::set(key, value);
  }
  using c10d::HashStore::wait;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    ++others;
    c10d::HashStore::wait(keys, timeout);
  }

  int gathers = 0;
  absl::Duration patience;  // of the last one
  int others = 0;
};

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST(GatheringStoreTest, RanksHearEachOtherInAnyStore) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto counting = c10::make_intrusive<CountingStore>();
  for (const c10::intrusive_ptr<c10d::Store>& whole :
       std::vector<c10::intrusive_ptr<c10d::Store>>{plain, counting}) {
    StorePart store("part", whole);
    EXPECT_EQ(AsGathering(store) != nullptr, AsGathering(*whole) != nullptr);
    std::vector<std::string> heard;
    std::thread other([&] { heard = GatherWords(store, "words", 1, 2, "one", kLong); });
    EXPECT_THAT(GatherWords(store, "words", 0, 2, "zero", kLong), ElementsAre("zero", "one"));
    other.join();
    EXPECT_THAT(heard, ElementsAre("zero", "one"));
    EXPECT_EQ(whole->get_to_str("part/words/1"), "one");
    EXPECT_ANY_THROW(GatherWords(store, "another", 0, 2, "zero", kShort)) << "one of two";
  }
  EXPECT_EQ(AsGathering(*plain), nullptr);
  EXPECT_EQ(counting->gathers, 3);
  EXPECT_EQ(counting->others, 0);
}

TEST(GatheringStoreTest, RanksMeetInOneCall) {
  const auto store = c10::make_intrusive<CountingStore>();
  store->c10d::HashStore::set("here/1", Bytes("7\ngloo\n"));
  const auto ranks = MeetPeers(*store, 0, 2, {.host = 3, .backend = "gloo"}, kLong);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_EQ((*ranks)[1].host, 7U);
  EXPECT_EQ(store->gathers, 1);
  EXPECT_EQ(store->others, 0);
}

TEST(RendezvousStoreTest, AllAddressesComeInOneCall) {
  const auto whole = c10::make_intrusive<CountingStore>();
  for (const char* key : {"gloo/0", "gloo/2"}) whole->c10d::HashStore::set(key, Bytes(key));
  RendezvousStore store(whole, 3, kLong);
  store.set("gloo/1", Bytes("mine"));
  EXPECT_FALSE(whole->check({"gloo/1"})) << "not yet";
  for (int rank = 0; rank < 3; ++rank) {
    const std::string key = absl::StrCat("gloo/", rank);
    store.wait({key}, absl::ToChronoMilliseconds(kShort));
    EXPECT_EQ(store.get_to_str(key), rank == 1 ? "mine" : key);
  }
  EXPECT_EQ(whole->gathers, 1);
  EXPECT_EQ(whole->others, 0);
  EXPECT_EQ(whole->patience, kLong) << "a rank may be later than a connection";
}

TEST(RendezvousStoreTest, AnotherAttemptAsksAnew) {
  const auto whole = c10::make_intrusive<CountingStore>();
  RendezvousStore store(whole, 2, kShort);
  store.set("0", Bytes("old"));
  EXPECT_ANY_THROW(store.wait({"1"}, absl::ToChronoMilliseconds(kShort)));
  EXPECT_TRUE(whole->check({"0"})) << "the other rank may still come";
  whole->c10d::HashStore::set("1", Bytes("one"));
  EXPECT_EQ(store.get_to_str("1"), "one");
  store.set("0", Bytes("new"));
  whole->c10d::HashStore::set("1", Bytes("another"));
  EXPECT_EQ(store.get_to_str("1"), "another");
  EXPECT_EQ(whole->get_to_str("0"), "new");
}

TEST(RendezvousStoreTest, EverythingElseIsTheStores) {
  const auto whole = c10::make_intrusive<CountingStore>();
  RendezvousStore store(whole, 2, kShort);
  store.set("name", Bytes("x"));
  EXPECT_TRUE(whole->check({"name"}));
  EXPECT_EQ(store.get_to_str("name"), "x");
  store.set("2", Bytes("of nobody"));
  EXPECT_TRUE(whole->check({"2"}));
  store.set("1", Bytes("y"));
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_TRUE(whole->check({"1"})) << "in the order in which it was asked";
  EXPECT_EQ(whole->gathers, 0);
}

}  // namespace
}  // namespace ddprun::worker
