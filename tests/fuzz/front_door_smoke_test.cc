#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/fuzz/front_door_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is front_door_fuzzer.
namespace ddprun::rendezvous {
namespace {

FrontDoorFuzzResult Play(const std::string& bytes) {
  return FuzzFrontDoor(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(FrontDoorSmoke, ConnectionsComeAndGo) {
  FrontDoorFuzzResult sum;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    std::string bytes(20 + rng.Below(600), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    const FrontDoorFuzzResult result = Play(bytes);
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    sum.admitted += result.admitted;
    sum.turned_away += result.turned_away;
    sum.evicted += result.evicted;
  }
  // The events got somewhere.
  EXPECT_GT(sum.admitted, 3000u);
  EXPECT_GT(sum.turned_away, 300u);
  EXPECT_GT(sum.evicted, 300u);
}

TEST(FrontDoorSmoke, NamesOfPeers) {
  const auto read = [](char family, const std::string& name) {
    const std::string head = {1, 1, 1, 5, family, static_cast<char>(name.size())};
    const FrontDoorFuzzResult result = Play(head + name);
    EXPECT_EQ(result.problem, "") << name;
    return result.peers;
  };
  EXPECT_EQ(read('\0', "10.0.0.1:4711"), 1u);
  EXPECT_EQ(read('\0', "127.0.0.1:65535"), 1u);
  EXPECT_EQ(read('\x78', "%5Bfe80::1%25eth0%5D:80"), 1u);
  EXPECT_EQ(read('\x78', "[::ffff:127.0.0.1]:80"), 1u);
  EXPECT_EQ(read('\x78', "%5B::1%5D:99999"), 0u);
  EXPECT_EQ(read('\xF0', "unix:/tmp/socket"), 0u);
  EXPECT_EQ(read('\xF0', "ipv4:1.2.3:4"), 0u);
}

TEST(FrontDoorSmoke, TheEmptyInput) { EXPECT_EQ(Play("").problem, ""); }

}  // namespace
}  // namespace ddprun::rendezvous
