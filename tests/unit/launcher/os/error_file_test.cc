#include "launcher/os/error_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "launcher/os/files.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class ErrorFileTest : public ::testing::Test {
 protected:
  ErrorFile Read(const std::string& text) {
    auto file = ReadErrorFile(tree_.Write("error.json", text));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.value_or(ErrorFile());
  }

  testing::TempTree tree_;
};

TEST_F(ErrorFileTest, ReadsTheFormOfRecord) {
  const ErrorFile file = Read(
      R"({"message": {"message": "ValueError: bad", "extraInfo":
          {"py_callstack": "Traceback…\n  line 3\n", "timestamp": "1700000000"}}})");
  EXPECT_EQ(file.message, "ValueError: bad");
  EXPECT_EQ(file.traceback, "Traceback…\n  line 3\n");
  EXPECT_EQ(file.timestamp, 1'700'000'000);
}

// Python's surrogateescape: half a character, of bytes that are no UTF-8.
TEST_F(ErrorFileTest, HalfACharacterCostsNothingElse) {
  const ErrorFile file = Read(
      R"({"message": {"message": "no file 'a\udcff\\ud800b \ud83d\ude00 \ud83d'", "extraInfo":
          {"py_callstack": "Traceback\n\ud83d", "timestamp": 5}}})");
  EXPECT_EQ(file.message, "no file 'a\xef\xbf\xbd\\ud800b \xf0\x9f\x98\x80 \xef\xbf\xbd'");
  EXPECT_EQ(file.traceback, "Traceback\n\xef\xbf\xbd");
  EXPECT_NE(WithErrorCode(R"({"message": {"message": "\udcff"}})", 3), std::nullopt);
}

TEST_F(ErrorFileTest, ReadsThePlainForm) {
  EXPECT_EQ(Read(R"({"message": "out of cheese", "timestamp": 17})").message, "out of cheese");
  EXPECT_EQ(Read(R"({"message": "m", "timestamp": 17})").timestamp, 17);
  EXPECT_EQ(Read(R"({"message": "m", "timestamp": "18.5"})").timestamp, 18);
  EXPECT_EQ(Read(R"({"message": "m"})").timestamp, 0);
  EXPECT_EQ(Read(R"({"message": "m"})").traceback, "");
}

TEST_F(ErrorFileTest, TakesOddValuesAsText) {
  EXPECT_EQ(Read(R"({"message": 17})").message, "17");
  EXPECT_EQ(Read(R"({"message": null})").message, "");
  EXPECT_EQ(Read(R"({"message": {"message": ["a"], "extraInfo": 3}})").message, R"(["a"])");
  EXPECT_EQ(Read(R"({"message": {}})").message, "");
  EXPECT_EQ(Read(R"({"message": "m", "timestamp": -5})").timestamp, 0);
  EXPECT_EQ(Read(R"({"message": "m", "timestamp": 1e300})").timestamp, 0);
  EXPECT_EQ(Read(R"({"message": "m", "timestamp": "nan"})").timestamp, 0);
}

TEST_F(ErrorFileTest, ShowsWhatItCanNotUnderstand) {
  const std::string cut = Read(R"({"message": "cut o)").message;
  EXPECT_TRUE(absl::StrContains(cut, "error.json' is not valid JSON; it begins: {\"mess")) << cut;
  EXPECT_TRUE(absl::StrContains(Read("[1]").message, "without a \"message\"")) << cut;
  EXPECT_TRUE(absl::StrContains(Read("{}").message, "without a \"message\"")) << cut;
  EXPECT_TRUE(absl::StrContains(Read("{\"message\": \"\xff\"}").message, "not valid JSON"));
  const std::string deep(500'000, '[');
  EXPECT_TRUE(absl::StrContains(Read(deep).message, "not valid JSON"));
  EXPECT_LT(Read(deep).message.size(), 3000U);
}

TEST_F(ErrorFileTest, ReadsNoMoreThanItsBound) {
  const std::string message = Read("{\"message\": \"" + std::string(2 << 20, 'x') + "\"}").message;
  EXPECT_TRUE(absl::StrContains(message, "is longer than 1 MiB"));
  EXPECT_LT(message.size(), 3000U);
}

TEST_F(ErrorFileTest, NoFileAndAnEmptyOneAreNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ReadErrorFile(tree_.path() + "/none").status()));
  EXPECT_TRUE(absl::IsNotFound(ReadErrorFile(tree_.Write("empty", "")).status()));
}

TEST_F(ErrorFileTest, AFifoOrADirectoryDoesNotHoldUs) {
  const std::string fifo = tree_.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadErrorFile(fifo).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadErrorFile(tree_.path()).status()));
}

// Valid JSON, deep enough to overflow the stack of a program that shows it.
TEST_F(ErrorFileTest, DeepNestingIsCut) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_LT(Read("{\"message\": " + deep + "}").message.size(), 1000U);
  EXPECT_LT(WithErrorCode("{\"message\": {\"message\": " + deep + "}}", 1)->size(), 1000U);
}

// Check 57 of tests/contract.
TEST(WithErrorCodeTest, AddsTheCodeToTheFormOfRecord) {
  EXPECT_EQ(WithErrorCode(R"({"message":{"message":"m","extraInfo":{"a":[1]}}})", -9),
            R"({"message":{"errorCode":-9,"extraInfo":{"a":[1]},"message":"m"}})");
}

TEST(WithErrorCodeTest, LeavesThePlainFormAsItIs) {
  EXPECT_EQ(WithErrorCode(R"({ "message": "m", "timestamp": 1 })", 3),
            R"({ "message": "m", "timestamp": 1 })");
}

TEST(WithErrorCodeTest, RefusesWhatIsNoErrorFile) {
  EXPECT_EQ(WithErrorCode("", 1), std::nullopt);
  EXPECT_EQ(WithErrorCode("{oops", 1), std::nullopt);
  EXPECT_EQ(WithErrorCode("[1]", 1), std::nullopt);
  EXPECT_EQ(WithErrorCode("{}", 1), std::nullopt);
}

TEST(FormatErrorFileTest, IsReadBack) {
  const ErrorFile file = ParseErrorFile(
      "f", FormatErrorFile({.message = "E: \xff", .traceback = "at 1\n", .timestamp = 17}));
  EXPECT_EQ(file.message, "E: \uFFFD");
  EXPECT_EQ(file.traceback, "at 1\n");
  EXPECT_EQ(file.timestamp, 17);
}

TEST_F(ErrorFileTest, FilesAreReplacedWhole) {
  const std::string path = tree_.Write("report.json", "old, and longer than the new one");
  EXPECT_TRUE(WriteFile(path, "new").ok());
  EXPECT_EQ(tree_.Read("report.json"), "new");
  const absl::Status status = WriteFile(tree_.path() + "/missing/x", "new");
  EXPECT_TRUE(absl::StrContains(status.message(), "/missing/x")) << status;
}

}  // namespace
}  // namespace ddprun::launcher
