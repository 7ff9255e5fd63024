#include <gtest/gtest.h>

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/stores/core/key_value_store.h"
#include "launcher/stores/peer_store.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// How a run over a store went; for tests that want it to reach something.
struct StoreFuzzResult {
  size_t answered = 0;
  size_t refused = 0;    // of those: INVALID_ARGUMENT or RESOURCE_EXHAUSTED
  size_t cancelled = 0;  // while they waited
  size_t malformed = 0;  // requests that agent/v1 does not take
};

// Feeds a store of small bounds with what `bytes` say and aborts when it breaks its promises: its
// own invariants, each call answered exactly once, with a code that its header names, and
// everything answered when it is closed. The bytes are steps: one that chooses, then
//   0xf0 …         pause of 0 to 15 s        0xe0 …   cancel one of the last 16 calls
//   0xd0, 0xd1     timer, close              else     a call: so many bytes are its StoreRequest
StoreFuzzResult FuzzStore(absl::string_view bytes);

namespace {

constexpr uint8_t kPause = 0xf0;
constexpr uint8_t kCancel = 0xe0;
constexpr uint8_t kClose = 0xd1;
constexpr uint8_t kTimer = 0xd0;

class Run {
 public:
  StoreFuzzResult Of(absl::string_view bytes) {
    while (!bytes.empty()) bytes.remove_prefix(One(bytes));
    Take(StoreClosed{"the end"});
    DDPRUN_CHECK(owed_.empty(), "a call has no answer");
    DDPRUN_CHECK(store_.bytes() == 0 && store_.NextDeadline().is_infinite(), "not empty");
    return result_;
  }

 private:
  // Returns how many bytes were used, at least 1.
  size_t One(absl::string_view bytes) {
    const auto step = static_cast<uint8_t>(bytes[0]);
    if (step >= kPause) {
      now_ = now_ + absl::Seconds(step - kPause);
    } else if (step >= kCancel) {
      Cancel(last_call_ - std::min<uint64_t>(last_call_, step - kCancel));
    } else if (step >= kClose) {
      Take(StoreClosed{"closed"});
    } else if (step == kTimer) {
      Take(StoreTimerDue{});
    } else {
      const size_t size = std::min<size_t>(step, bytes.size() - 1);
      Call(bytes.substr(1, size));
      return 1 + size;
    }
    return 1;
  }
  void Call(absl::string_view bytes) {
    agent::v1::StoreRequest request;
    const bool parsed = request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    absl::StatusOr<StoreOperation> operation = FromProto(request);
    if (!parsed || !operation.ok()) {
      ++result_.malformed;
      return;
    }
    owed_.insert(StoreCallId(++last_call_));
    Take(StoreCall{StoreCallId(last_call_), *std::move(operation)});
  }
  void Cancel(uint64_t call) {
    result_.cancelled += owed_.erase(StoreCallId(call));
    Take(StoreCallCancelled{StoreCallId(call)});
  }
  void Take(StoreEvent event) {
    for (const StoreAnswer& answer : store_.Step(now_, std::move(event))) Check(answer);
    store_.CheckInvariants();
    DDPRUN_CHECK(owed_.size() == store_.waiter_count(), "a call is neither answered nor waits");
  }
  void Check(const StoreAnswer& answer) {
    DDPRUN_CHECK(owed_.erase(answer.call) == 1, "an answer that nobody is owed");
    ++result_.answered;
    const absl::Status& status = answer.result.status();
    const bool refused = absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
    result_.refused += refused ? 1 : 0;
    DDPRUN_CHECK(
        status.ok() || refused || absl::IsAborted(status) || absl::IsDeadlineExceeded(status),
        status.ToString());
    if (status.ok()) ToProto(*answer.result);
  }

  KeyValueStore store_{StoreBounds{.keys = 8,
                                   .key_bytes = 16,
                                   .value_bytes = 32,
                                   .bytes = 200,
                                   .keys_per_call = 6,
                                   .waiters = 6}};
  Instant now_;
  uint64_t last_call_ = 0;
  std::set<StoreCallId> owed_;
  StoreFuzzResult result_;
};

}  // namespace

StoreFuzzResult FuzzStore(absl::string_view bytes) {
  google::protobuf::SetLogHandler(nullptr);  // protobuf logs each invalid UTF-8
  return Run().Of(bytes);
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240913;
constexpr int kRounds = 4'000;

std::string RandomBytes(Rng* rng, uint64_t size_max) {
  std::string bytes(rng->Below(size_max + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng->Below(256));
  return bytes;
}

std::string Key(Rng* rng) {
  if (rng->Chance(3)) return std::string(rng->Below(20), 'k');
  return std::string(1, static_cast<char>('a' + rng->Below(6)));
}

template <typename Keys>
void FillKeys(Rng* rng, Keys* keys) {
  for (uint64_t i = rng->Below(8); i > 0; --i) keys->add_keys(Key(rng));
}

agent::v1::StoreRequest RandomRequest(Rng* rng) {
  agent::v1::StoreRequest request;
  const auto timeout_ms = static_cast<uint32_t>(rng->Below(20'000));
  switch (rng->Below(8)) {
    case 0:
      request.mutable_set()->set_key(Key(rng));
      request.mutable_set()->set_value(rng->Chance(50) ? "7" : RandomBytes(rng, 40));
      break;
    case 1:
      request.mutable_get()->set_key(Key(rng));
      request.mutable_get()->set_timeout_ms(timeout_ms);
      break;
    case 2:
      FillKeys(rng, request.mutable_wait());
      request.mutable_wait()->set_timeout_ms(rng->Chance(5) ? UINT32_MAX : timeout_ms);
      break;
    case 3:
      request.mutable_add()->set_key(Key(rng));
      request.mutable_add()->set_amount(static_cast<int64_t>(rng->Next()));
      break;
    case 4:
      FillKeys(rng, request.mutable_check());
      break;
    case 5:
      request.mutable_delete_()->set_key(Key(rng));
      break;
    case 6:
      request.mutable_compare_set()->set_key(Key(rng));
      request.mutable_compare_set()->set_expected(rng->Chance(50) ? "7" : "");
      request.mutable_compare_set()->set_desired(RandomBytes(rng, 8));
      break;
    default:
      request.mutable_count();
  }
  return request;
}

// Mostly well-formed calls, with pauses and cancels and, rarely, the end of the store between them.
std::string RandomSteps(Rng* rng) {
  std::string bytes;
  for (int i = 0; i < 60; ++i) {
    const std::string request = RandomRequest(rng).SerializeAsString();
    if (request.size() < 0xd0) bytes += static_cast<char>(request.size()) + request;
    if (rng->Chance(10)) bytes += static_cast<char>(0xd0 + (rng->Chance(3) ? 1 : 0));
    if (rng->Chance(20)) bytes += static_cast<char>(0xe0 + rng->Below(8));
    if (rng->Chance(30)) bytes += static_cast<char>(0xf0 + rng->Below(4));
  }
  return bytes;
}

TEST(StoreSmokeTest, KeepsItsPromisesForAnyCalls) {
  Rng rng(kSeed);
  StoreFuzzResult sum;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = RandomSteps(&rng);
    if (rng.Chance(30)) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    const StoreFuzzResult result = FuzzStore(bytes);
    sum.answered += result.answered;
    sum.refused += result.refused;
    sum.cancelled += result.cancelled;
    sum.malformed += result.malformed;
  }
  EXPECT_GT(sum.answered, 100'000U);
  EXPECT_GT(sum.refused, 10'000U);
  EXPECT_GT(sum.cancelled, 1'000U);
  EXPECT_GT(sum.malformed, 1'000U);
}

TEST(StoreSmokeTest, KeepsItsPromisesForAnyBytes) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) FuzzStore(RandomBytes(&rng, 400));
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzStore(bytes); }
