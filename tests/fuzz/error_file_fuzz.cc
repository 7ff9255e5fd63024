#include <gtest/gtest.h>

#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/os/error_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/inputs.h"

namespace ddprun::launcher {

// Reads `bytes` as an error file and aborts when that breaks a promise: there is always an answer;
// what is no error file says so; the launcher's own file made of it is one again, with the code.
// Returns true when the bytes were an error file; for tests that want some to be.
bool FuzzErrorFile(absl::string_view bytes);

bool FuzzErrorFile(absl::string_view bytes) {
  const ErrorFile file = ParseErrorFile("error.json", bytes);
  DDPRUN_CHECK(file.timestamp >= 0, "a time before 1970");
  const std::optional<std::string> copy = WithErrorCode(bytes, -11);
  if (!copy.has_value()) {
    DDPRUN_CHECK(absl::StartsWith(file.message, "error file 'error.json' is "), file.message);
  } else {
    const ErrorFile again = ParseErrorFile("error.json", *copy);
    DDPRUN_CHECK(again.timestamp == file.timestamp, "the copy has another time");
    DDPRUN_CHECK(WithErrorCode(*copy, -11) == copy, "the copy of the copy differs");
  }
  const ErrorFile own = ParseErrorFile("own", FormatErrorFile(file));
  DDPRUN_CHECK(own.timestamp == file.timestamp, "the own file has another time");
  return copy.has_value();
}

}  // namespace ddprun::launcher

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

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzErrorFile(bytes); }
