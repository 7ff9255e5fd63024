#include "launcher/stores/core/tcp_store.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/tcp_store_bytes.h"

namespace ddprun::launcher {
namespace {

using namespace tcp_store_bytes;  // NOLINT(google-build-using-namespace): the words of the protocol

constexpr char kStop[] = "\0";
constexpr char kCanceled[] = "\1";

std::string Byte(const char* byte) { return std::string(byte, 1); }

// A store and what each of its clients was sent.
class Store {
 public:
  explicit Store(const TcpStoreBounds& bounds = {}) : store_(bounds) {}

  // A client that has greeted.
  uint64_t Client() {
    store_.Open(TcpConnectionId(++last_));
    Send(last_, Validate());
    return last_;
  }
  // A client that has said nothing.
  uint64_t Stranger() {
    store_.Open(TcpConnectionId(++last_));
    return last_;
  }
  void Send(uint64_t client, absl::string_view bytes) {
    for (TcpStoreEffect& effect : store_.Receive(TcpConnectionId(client), bytes)) {
      std::string& inbox = inboxes_[effect.connection.value()];
      inbox += effect.bytes;
      if (effect.value != nullptr) inbox += *effect.value;
      if (!effect.error.ok()) inbox += absl::StrCat("closed: ", effect.error.message());
    }
    store_.CheckInvariants();
  }
  // What came for a client since the last time.
  std::string Inbox(uint64_t client) { return std::exchange(inboxes_[client], ""); }
  std::string Ask(uint64_t client, absl::string_view bytes) {
    Send(client, bytes);
    return Inbox(client);
  }
  void Leave(uint64_t client) {
    store_.Close(TcpConnectionId(client));
    store_.CheckInvariants();
  }
  const TcpStore& get() const { return store_; }

 private:
  TcpStore store_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::string> inboxes_;
};

TEST(TcpStoreTest, ValuesAreSetReadCountedAndDeleted) {
  Store store;
  const uint64_t client = store.Client();
  EXPECT_EQ(store.Ask(client, Set("a", "1") + Set("b", std::string("\0\xff", 2))), "");
  EXPECT_EQ(store.Ask(client, Get("a")), Text("1"));
  EXPECT_EQ(store.Ask(client, Get("b")), Text(std::string("\0\xff", 2)));
  EXPECT_EQ(store.Ask(client, Get("absent")), Text(""));
  EXPECT_EQ(store.Ask(client, MultiGet({"b", "absent", "a"})),
            Text(std::string("\0\xff", 2)) + Text("") + Text("1"));
  EXPECT_EQ(store.Ask(client, Count()), Number(2));
  EXPECT_EQ(store.Ask(client, Delete("a") + Delete("a")), Number(1) + Number(0));
  EXPECT_EQ(store.Ask(client, Count()), Number(1));
}

TEST(TcpStoreTest, LargeValuesAreSharedNotCopied) {
  Store store;
  const uint64_t client = store.Client();
  const std::string large(100'000, 'x');
  store.Send(client, Set("large", large));
  EXPECT_EQ(store.Ask(client, Get("large") + Ping(7) + Get("large")),
            Text(large) + Number(7, 4) + Text(large));
  // What is on its way is not changed by what comes later.
  EXPECT_EQ(store.Ask(client, Get("large") + Append("large", "y") + Get("large") +
                                  Set("large", "z") + Get("large")),
            Text(large) + Text(large + "y") + Text("z"));
}

TEST(TcpStoreTest, ListsKeysAndSetsMany) {
  Store store;
  const uint64_t client = store.Client();
  EXPECT_EQ(store.Ask(client, MultiSet({"b", "2", "a", "1"})), "");
  EXPECT_EQ(store.Ask(client, MultiSet({}) + Ping(1)), Number(1, 4));
  EXPECT_EQ(store.Ask(client, MultiGet({"a", "b"})), Text("1") + Text("2"));
  EXPECT_EQ(store.Ask(client, ListKeys()), Texts({"a", "b"}));
}

TEST(TcpStoreTest, AddsAppendsAndCompares) {
  Store store;
  const uint64_t client = store.Client();
  EXPECT_EQ(store.Ask(client, Add("n", 5) + Add("n", -7) + Get("n")),
            Number(5) + Number(static_cast<uint64_t>(-2)) + Text("-2"));
  EXPECT_EQ(store.Ask(client, Append("text", "ab") + Append("text", "c") + Get("text")),
            Text("abc"));
  EXPECT_EQ(store.Ask(client, CompareSet("x", "no", "1")), Text("no"));  // and x is still absent
  EXPECT_EQ(store.Ask(client, Check({"x"})), Number(1, 1));
  EXPECT_EQ(store.Ask(client, CompareSet("x", "", "1")), Text("1"));
  EXPECT_EQ(store.Ask(client, CompareSet("x", "no", "2")), Text("1"));
  EXPECT_EQ(store.Ask(client, CompareSet("x", "1", "2")), Text("2"));
  EXPECT_EQ(store.Ask(client, Check({"x", "text"})), Number(0, 1));
  EXPECT_EQ(store.Ask(client, Check({})), Number(0, 1));
}

TEST(TcpStoreTest, AWaitIsMetWhenEachKeyWasThere) {
  Store store;
  const uint64_t setter = store.Client();
  const uint64_t waiter = store.Client();
  EXPECT_EQ(store.Ask(waiter, Wait({})), Byte(kStop));
  store.Send(setter, Set("there", ""));
  EXPECT_EQ(store.Ask(waiter, Wait({"there"})), Byte(kStop));
  EXPECT_EQ(store.Ask(waiter, Wait({"a", "there", "b", "a"})), "");
  EXPECT_EQ(store.get().waiter_count(), 1U);
  store.Send(setter, Set("a", "") + Delete("a"));  // gone again: it was there
  EXPECT_EQ(store.Inbox(waiter), "");
  store.Send(setter, Add("b", 0));
  EXPECT_EQ(store.Inbox(waiter), Byte(kStop));
  EXPECT_EQ(store.get().waiter_count(), 0U);
  store.Send(setter, Set("b", "again"));
  EXPECT_EQ(store.Inbox(waiter), "");
}

TEST(TcpStoreTest, EverythingThatMakesAKeyWakes) {
  for (const std::string& what :
       {Set("k", ""), Add("k", 1), Append("k", "x"), CompareSet("k", "", "x"),
        MultiSet({"j", "", "k", ""}), QueuePush("k", ""), Barrier("k", 1)}) {
    Store store;
    const uint64_t setter = store.Client();
    const uint64_t waiter = store.Client();
    store.Send(waiter, Wait({"k"}));
    store.Send(setter, what);
    EXPECT_EQ(store.Inbox(waiter), Byte(kStop)) << int{what[0]};
  }
}

TEST(TcpStoreTest, TheCallersAnswerComesFirstThenTheOldestWaiters) {
  TcpStore store;
  for (uint64_t id = 1; id <= 4; ++id) {
    store.Open(TcpConnectionId(id));
    store.Receive(TcpConnectionId(id), Validate());
  }
  for (const uint64_t id : {3, 1, 2}) store.Receive(TcpConnectionId(id), Wait({"k"}));
  std::vector<uint64_t> order;
  for (const TcpStoreEffect& effect : store.Receive(TcpConnectionId(4), Add("k", 1))) {
    order.push_back(effect.connection.value());
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 3, 1, 2}));
}

TEST(TcpStoreTest, AWaitCanBeGivenUp) {
  Store store;
  const uint64_t setter = store.Client();
  const uint64_t waiter = store.Client();
  EXPECT_EQ(store.Ask(waiter, Wait({"a", "b"})), "");
  EXPECT_EQ(store.Ask(waiter, CancelWait()), Byte(kCanceled));
  store.Send(setter, Set("a", "") + Set("b", ""));
  EXPECT_EQ(store.Inbox(waiter), "");
  EXPECT_EQ(store.Ask(waiter, CancelWait()), Byte(kCanceled));  // the key came in the same moment
  // Waiting anew, and going away.
  store.Send(waiter, Wait({"c"}) + Wait({"d"}));
  EXPECT_EQ(store.get().waiter_count(), 1U);
  store.Send(setter, Set("c", ""));
  EXPECT_EQ(store.Inbox(waiter), "");
  store.Leave(waiter);
  EXPECT_EQ(store.get().waiter_count(), 0U);
  store.Send(setter, Set("d", ""));
  EXPECT_EQ(store.Inbox(waiter), "");
  store.Leave(waiter);  // once more
  EXPECT_EQ(store.get().connection_count(), 1U);
}

TEST(TcpStoreTest, QueuesAreFirstInFirstOutAndWakeOne) {
  Store store;
  const uint64_t one = store.Client();
  const uint64_t two = store.Client();
  const uint64_t other = store.Client();
  EXPECT_EQ(store.Ask(other, QueueLength("q") + QueuePop("q")), Number(0) + Number(0));
  store.Send(one, Wait({"q"}));
  store.Send(two, Wait({"q"}));
  EXPECT_EQ(store.Ask(other, QueuePush("q", "x") + QueueLength("q")), Number(1));
  EXPECT_EQ(store.Inbox(one), Byte(kStop));
  EXPECT_EQ(store.Inbox(two), "");
  EXPECT_EQ(store.Ask(one, QueuePop("q")), Number(1) + Text("x"));
  store.Send(other, QueuePush("q", "y") + QueuePush("q", "z"));
  EXPECT_EQ(store.Inbox(two), Byte(kStop));
  EXPECT_EQ(store.Ask(other, Check({"q"})), Number(0, 1));
  EXPECT_EQ(store.Ask(two, QueuePop("q") + QueuePop("q")),
            Number(2) + Text("y") + Number(1) + Text("z"));
  EXPECT_EQ(store.Ask(other, Check({"q"}) + Count()), Number(1, 1) + Number(0));
}

TEST(TcpStoreTest, ABarrierOpensForTheLast) {
  Store store;
  const uint64_t one = store.Client();
  const uint64_t two = store.Client();
  const uint64_t three = store.Client();
  EXPECT_EQ(store.Ask(one, Barrier("b", 3)), "");
  EXPECT_EQ(store.Ask(two, Barrier("b", 3)), "");
  EXPECT_EQ(store.Inbox(one), "");
  EXPECT_EQ(store.Ask(three, Barrier("b", 3)), Byte(kStop));
  EXPECT_EQ(store.Inbox(one) + store.Inbox(two), Byte(kStop) + Byte(kStop));
  EXPECT_EQ(store.Ask(one, Get("b")), Text("3"));
}

TEST(TcpStoreTest, PiecesOfAnySizeComeToTheSame) {
  const std::string requests = Validate() + Ping(0x01020304) + Set("key", "value") +
                               MultiSet({"a", "1", "b", ""}) + Add("n", 3) +
                               CompareSet("key", "value", "new") + Append("key", "er") +
                               MultiGet({"key", "a", "b", "n"}) + Count() + Wait({"a", "key"});
  const std::string expected = Number(0x01020304, 4) + Number(3) + Text("new") + Text("newer") +
                               Text("1") + Text("") + Text("3") + Number(4) + Byte(kStop);
  for (size_t piece = 1; piece <= requests.size(); ++piece) {
    Store store;
    const uint64_t client = store.Stranger();
    for (size_t at = 0; at < requests.size(); at += piece) {
      store.Send(client, absl::string_view(requests).substr(at, piece));
    }
    EXPECT_EQ(store.Inbox(client), expected) << "pieces of " << piece;
  }
}

// Clients before torch 2.2 greet with nothing and have other numbers.
TEST(TcpStoreTest, OldClientsAreServed) {
  const auto old = [](int command, const std::string& fields) { return Command(command) + fields; };
  Store store;
  const uint64_t setter = store.Stranger();
  EXPECT_EQ(store.Ask(setter, old(0, Text("k") + Text("v")) + old(2, Text("k"))), Text("v"));
  const uint64_t client = store.Stranger();
  EXPECT_EQ(store.Ask(client, old(3, Text("init/") + Number(1))), Number(1));
  EXPECT_EQ(store.Ask(client, old(1, Text("k") + Text("v") + Text("w"))), Text("w"));
  EXPECT_EQ(store.Ask(client, old(4, Texts({"k", "absent"}))), Number(1, 1));
  EXPECT_EQ(store.Ask(client, old(5, Texts({"k"}))), Byte(kStop));
  EXPECT_EQ(store.Ask(client, old(6, "")), Number(2));
  EXPECT_EQ(store.Ask(client, old(7, Text("k"))), Number(1));
  EXPECT_EQ(store.Ask(client, old(10, Number(1) + Text("m") + Text("w"))), "");
  EXPECT_EQ(store.Ask(client, old(9, Texts({"m", "k"}))), Text("w") + Text(""));
  EXPECT_EQ(store.Ask(client, old(11, "")), Byte(kCanceled));
  EXPECT_TRUE(absl::StartsWith(store.Ask(client, old(8, Text("k"))), "closed: command 8 deletes"));
  EXPECT_TRUE(absl::StartsWith(store.Ask(store.Stranger(), old(12, "")), "closed: command 12"));
  for (size_t piece = 1; piece <= 6; ++piece) {
    const std::string request = old(0, Text("piece") + Text("v")) + old(2, Text("piece"));
    const uint64_t slow = store.Stranger();
    for (size_t at = 0; at < request.size(); at += piece) {
      store.Send(slow, absl::string_view(request).substr(at, piece));
    }
    EXPECT_EQ(store.Inbox(slow), Text("v")) << piece;
  }
}

TEST(TcpStoreTest, WhatIsNoRequestCostsItsConnectionAlone) {
  Store store;
  const uint64_t client = store.Client();
  store.Send(client, Set("text", "no number") + Set("max", "9223372036854775807"));
  const struct {
    std::string bytes;
    const char* text;
  } cases[] = {
      {Command(99), "command 99 of TCPStore's protocol is not known"},
      {Command(0), "command 0"},
      {Command(3) + Number(8193), "a key of 8193 bytes"},
      {Command(1) + Text("k") + Number(uint64_t{1} << 40),
       "a value of 1099511627776 bytes for key 'k'"},
      {Command(5) + Number((uint64_t{1} << 17) + 1), "131073 keys in one request"},
      {Command(11) + Number(UINT64_MAX), "keys in one request"},
      {Add("text", 1), "add 1 to 'text': its value 'no number'"},
      {Add("max", 1), "beyond 64 bits"},
      {Append("text", std::string(16U << 20, 'x')), "the value would have"},
  };
  for (const auto& [bytes, text] : cases) {
    const uint64_t bad = store.Client();
    const std::string answer = store.Ask(bad, bytes);
    EXPECT_TRUE(absl::StartsWith(answer, "closed: ")) << text << ": " << answer;
    EXPECT_TRUE(absl::StrContains(answer, text)) << text << ": " << answer;
    EXPECT_EQ(store.Ask(bad, Get("text")), "") << "it is gone";
  }
  for (const char* bytes : {"GET / HTTP/1.1\r\n", "\x16\x03\x01"}) {
    EXPECT_TRUE(absl::StartsWith(store.Ask(store.Stranger(), bytes), "closed: ")) << bytes;
  }
  EXPECT_EQ(store.Ask(client, Get("text") + Get("max")),
            Text("no number") + Text("9223372036854775807"));
}

TEST(TcpStoreTest, BoundsHoldForAllTogether) {
  Store store({.request = {}, .keys = 3, .bytes = 1000});
  const uint64_t client = store.Client();
  EXPECT_EQ(store.Ask(client, Set("a", std::string(400, 'x')) + Set("b", std::string(400, 'x'))),
            "");
  const std::string full = store.Ask(store.Client(), Set("c", std::string(400, 'x')));
  EXPECT_TRUE(absl::StrContains(full, "at most 3 and 1000 are allowed")) << full;
  // So do requests that are not complete, and awaited keys.
  const uint64_t half = store.Client();
  EXPECT_EQ(store.Ask(half, Set("c", std::string(400, 'x')).substr(0, 150)), "");
  EXPECT_TRUE(absl::StartsWith(
      store.Ask(store.Client(), Set("d", std::string(400, 'x')).substr(0, 150)), "closed: "));
  EXPECT_TRUE(
      absl::StartsWith(store.Ask(store.Client(), Wait({std::string(150, 'w')})), "closed: "));
  store.Leave(half);
  EXPECT_EQ(store.Ask(client, Wait({std::string(150, 'w')})), "");
  store.Leave(client);
  const uint64_t last = store.Client();
  EXPECT_EQ(store.Ask(last, Set("c", "") + QueuePush("a", "")).substr(0, 8), "closed: ");
  EXPECT_EQ(store.get().key_count(), 3U);
  EXPECT_EQ(store.Ask(store.Client(), Set("a", "short") + Get("a")), Text("short"));
}

// A claimed length takes no memory before its bytes have come.
TEST(TcpStoreTest, ALengthIsNotBelievedBeforeItsBytesCome) {
  Store store;
  for (int i = 0; i < 1000; ++i) {
    store.Send(store.Stranger(), Validate() + Command(1) + Text("k") + Number(16U << 20));
    if (i % 100 != 0) continue;
    EXPECT_LT(store.get().bytes(), 1U << 20);
  }
}

}  // namespace
}  // namespace ddprun::launcher
