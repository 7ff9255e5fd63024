#include "worker/env/worker_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace ddprun::worker {
namespace {

class ErrorFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/error_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return directory_ + "/error.json"; }
  nlohmann::json Read() const {
    std::ifstream file(Path());
    return nlohmann::json::parse(file);
  }

  std::string directory_;
};

TEST_F(ErrorFileTest, HasTorchelasticsSchema) {
  const nlohmann::json json = nlohmann::json::parse(
      ErrorFileText({.message = "c10::Error: no", .stack = "frame 0\nframe 1"}, 1700000000));
  EXPECT_EQ(json["message"]["message"], "c10::Error: no");
  EXPECT_EQ(json["message"]["extraInfo"]["py_callstack"], "frame 0\nframe 1");
  EXPECT_EQ(json["message"]["extraInfo"]["timestamp"], "1700000000");
}

TEST_F(ErrorFileTest, WithoutAStackTheMessageStandsIn) {
  const nlohmann::json json = nlohmann::json::parse(ErrorFileText({.message = "no"}, 1));
  EXPECT_EQ(json["message"]["extraInfo"]["py_callstack"], "no");
}

TEST_F(ErrorFileTest, BytesThatAreNoTextAreReplaced) {
  const nlohmann::json json =
      nlohmann::json::parse(ErrorFileText({.message = std::string("a\xff\x01z", 4)}, 1));
  EXPECT_EQ(json["message"]["message"], "a\xEF\xBF\xBD\x01z");
}

TEST_F(ErrorFileTest, TheFirstErrorStaysAndNothingElseIsLeft) {
  ASSERT_TRUE(WriteErrorFile(Path(), {.message = "first"}).ok());
  ASSERT_TRUE(WriteErrorFile(Path(), {.message = "second"}).ok());
  EXPECT_EQ(Read()["message"]["message"], "first");
  EXPECT_GT(std::stoll(Read()["message"]["extraInfo"]["timestamp"].get<std::string>()), 1700000000);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(ErrorFileTest, AMissingDirectoryIsAnErrorWithThePath) {
  const absl::Status status = WriteErrorFile(directory_ + "/none/error.json", {.message = "x"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(directory_ + "/none/error.json"), absl::string_view::npos);
}

}  // namespace
}  // namespace ddprun::worker
