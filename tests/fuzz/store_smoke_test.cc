#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "tests/fuzz/store_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is store_fuzzer.
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
