#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "base/rng.h"
#include "tests/fuzz/error_file_fuzz.h"
#include "tests/support/inputs.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is error_file_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261121;
const int kRounds = Inputs(20'000);

// Pieces of error files, whole and broken.
constexpr const char* kPieces[] = {"{",
                                   "}",
                                   "[",
                                   "]",
                                   ":",
                                   ",",
                                   "\"",
                                   "\"message\"",
                                   "\"extraInfo\"",
                                   "\"py_callstack\"",
                                   "\"timestamp\"",
                                   "\"1700000000\"",
                                   "17",
                                   "-1",
                                   "1e999",
                                   "null",
                                   "true",
                                   "\\u0000",
                                   "\\ud800",
                                   "\xff",
                                   " ",
                                   "\n",
                                   "{\"message\": \"m\"}",
                                   "{\"message\":",
                                   "\"text\""};

TEST(ErrorFileSmokeTest, AnyBytesHaveAnAnswer) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes(rng.Below(60), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    FuzzErrorFile(bytes);
  }
}

TEST(ErrorFileSmokeTest, AnyPiecesHaveAnAnswer) {
  Rng rng(kSeed);
  int error_files = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = rng.Chance(50) ? "{\"message\":" : "";
    for (uint64_t i = rng.Below(6); i > 0; --i) bytes += kPieces[rng.Below(std::size(kPieces))];
    if (rng.Chance(50)) bytes += "}";
    if (FuzzErrorFile(bytes)) ++error_files;
  }
  EXPECT_GT(error_files, kRounds * 3 / 200);
}

TEST(ErrorFileSmokeTest, DamagedFilesHaveAnAnswer) {
  Rng rng(kSeed);
  const std::string whole =
      R"({"message": {"message": "E", "extraInfo": {"py_callstack": "at 1", "timestamp": "17"}}})";
  EXPECT_TRUE(FuzzErrorFile(whole));
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole.substr(0, rng.Below(whole.size() + 1));
    if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    FuzzErrorFile(bytes);
  }
}

}  // namespace
}  // namespace ddprun::launcher
