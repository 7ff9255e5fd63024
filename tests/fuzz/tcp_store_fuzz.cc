#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/stores/core/tcp_store.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/tcp_store_bytes.h"

namespace ddprun::launcher {

// How a run went; for tests that want it to reach something.
struct TcpStoreFuzzResult {
  size_t reply_bytes = 0;
  size_t closed = 0;  // connections that cost themselves
  size_t waits = 0;   // the most at a time
};

// Feeds a store of small bounds with what `bytes` say and aborts when it breaks its invariants, or
// speaks to a connection that isn't open. The bytes are steps: the first of each says over which of
// 4 connections (low 2 bits), whether it is closed (bit 2), and else how many of the next bytes
// come over it (bits 3 to 7, times 4).
TcpStoreFuzzResult FuzzTcpStore(absl::string_view bytes);

namespace {

class Run {
 public:
  Run() {
    for (uint64_t& id : open_) Open(&id);
  }

  TcpStoreFuzzResult Of(absl::string_view bytes) {
    while (!bytes.empty()) {
      const auto step = static_cast<uint8_t>(bytes[0]);
      bytes.remove_prefix(1);
      uint64_t& id = open_[step & 3U];
      if ((step & 4U) != 0) {
        store_.Close(TcpConnectionId(id));
        Open(&id);
      } else {
        const size_t size = std::min<size_t>((step >> 3U) * size_t{4}, bytes.size());
        Take(store_.Receive(TcpConnectionId(id), bytes.substr(0, size)));
        bytes.remove_prefix(size);
      }
      store_.CheckInvariants();
      result_.waits = std::max(result_.waits, store_.waiter_count());
    }
    for (const uint64_t id : open_) store_.Close(TcpConnectionId(id));
    store_.CheckInvariants();
    DDPRUN_CHECK(store_.waiter_count() == 0 && store_.connection_count() == 0, "not empty");
    return result_;
  }

 private:
  void Open(uint64_t* id) {
    *id = ++last_;
    store_.Open(TcpConnectionId(*id));
  }
  void Take(const std::vector<TcpStoreEffect>& effects) {
    for (const TcpStoreEffect& effect : effects) {
      const auto slot = std::find(open_.begin(), open_.end(), effect.connection.value());
      DDPRUN_CHECK(slot != open_.end(), "an effect on a connection that is not open");
      DDPRUN_CHECK(effect.error.ok() || (effect.bytes.empty() && effect.value == nullptr),
                   "bytes for a connection that ends");
      result_.reply_bytes += effect.bytes.size();
      if (effect.error.ok()) continue;
      ++result_.closed;
      Open(&*slot);
    }
  }

  TcpStore store_{{.request = {.key_bytes = 16, .value_bytes = 64, .keys = 8, .key_list_bytes = 64},
                   .keys = 8,
                   .bytes = 400}};
  std::array<uint64_t, 4> open_{};
  uint64_t last_ = 0;
  TcpStoreFuzzResult result_;
};

}  // namespace

TcpStoreFuzzResult FuzzTcpStore(absl::string_view bytes) { return Run().Of(bytes); }

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

namespace wire = tcp_store_bytes;

constexpr uint64_t kSeed = 20241121;
constexpr int kRounds = 4'000;

std::string RandomBytes(Rng* rng, uint64_t size_max) {
  std::string bytes(rng->Below(size_max + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng->Below(256));
  return bytes;
}

std::string Key(Rng* rng) {
  if (rng->Chance(2)) return std::string(rng->Below(20), 'k');
  return std::string(1, static_cast<char>('a' + rng->Below(6)));
}

std::string Value(Rng* rng) {
  return rng->Chance(50) ? std::string("7") : RandomBytes(rng, rng->Chance(3) ? 80 : 20);
}

std::string RandomRequest(Rng* rng) {
  const std::string key = Key(rng);
  switch (rng->Below(19)) {
    case 0:
      return wire::Set(key, Value(rng));
    case 1:
      return wire::CompareSet(key, rng->Chance(50) ? "7" : "", Value(rng));
    case 2:
      return wire::Get(key);
    case 3:
      return wire::Add(key, static_cast<int64_t>(rng->Below(100)));
    case 4:
      return wire::Check({key, Key(rng)});
    case 5:
    case 6:
      return wire::Wait({key, Key(rng), Key(rng)});
    case 7:
      return wire::Count();
    case 8:
    case 9:
      return wire::Delete(key);
    case 10:
      return wire::Append(key, Value(rng));
    case 11:
      return wire::MultiGet({key, Key(rng)});
    case 12:
      return wire::MultiSet({key, Value(rng), Key(rng), Value(rng)});
    case 13:
      return wire::CancelWait();
    case 14:
      return wire::QueuePush(key, Value(rng));
    case 15:
      return wire::QueuePop(key) + wire::QueueLength(key);
    case 16:
      return wire::ListKeys();
    case 17:
      return wire::Barrier(key, static_cast<int64_t>(rng->Below(4)));
    default:
      return wire::Ping(static_cast<uint32_t>(rng->Next()));
  }
}

// Requests over four connections, cut anywhere, with ends of connections between them.
std::string RandomSteps(Rng* rng) {
  std::array<std::string, 4> unsent;
  for (std::string& stream : unsent) stream = rng->Chance(90) ? wire::Validate() : "";
  std::string bytes;
  for (int i = 0; i < 80; ++i) {
    const uint64_t slot = rng->Below(unsent.size());
    std::string& stream = unsent[slot];
    if (rng->Chance(2)) {
      bytes += static_cast<char>(slot | 4U);
      stream = wire::Validate();
      continue;
    }
    stream += RandomRequest(rng);
    const uint64_t units = std::min<uint64_t>(rng->Below(32), stream.size() / 4);
    bytes += static_cast<char>(slot | units << 3U);
    bytes += stream.substr(0, units * 4);
    stream.erase(0, units * 4);
  }
  return bytes;
}

TEST(TcpStoreSmokeTest, KeepsItsPromisesForAnyRequests) {
  Rng rng(kSeed);
  TcpStoreFuzzResult sum;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = RandomSteps(&rng);
    if (rng.Chance(20)) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    const TcpStoreFuzzResult result = FuzzTcpStore(bytes);
    sum.reply_bytes += result.reply_bytes;
    sum.closed += result.closed;
    sum.waits = std::max(sum.waits, result.waits);
  }
  EXPECT_GT(sum.reply_bytes, 1'000'000U);
  EXPECT_GT(sum.closed, 4'000U);
  EXPECT_EQ(sum.waits, 4U);
}

TEST(TcpStoreSmokeTest, KeepsItsPromisesForAnyBytes) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) FuzzTcpStore(RandomBytes(&rng, 400));
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzTcpStore(bytes); }
