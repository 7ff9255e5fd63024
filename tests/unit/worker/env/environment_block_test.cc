#include "worker/env/start_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class EnvironmentBlockTest : public ::testing::Test {
 protected:
  ~EnvironmentBlockTest() override { environ = before_; }

  // Lays the strings out as the kernel does.
  void Begin(const std::vector<std::string>& strings) {
    for (const std::string& text : strings) bytes_ += text + '\0';
    char* next = bytes_.data();
    for (const std::string& text : strings) {
      began_.push_back(next);
      next += text.size() + 1;
    }
    began_.push_back(nullptr);
  }

  // What /proc/PID/environ would show.
  std::vector<std::string> Shown() const { return absl::StrSplit(bytes_, '\0', absl::SkipEmpty()); }
  static std::vector<std::string> Environment() {
    std::vector<std::string> strings;
    for (char** string = environ; *string != nullptr; ++string) strings.emplace_back(*string);
    return strings;
  }

  char** before_ = environ;
  std::string bytes_;
  std::vector<char*> began_;
};

TEST_F(EnvironmentBlockTest, WhatIsNewStandsInTheRoom) {
  Begin({"HOME=/root", "DDPRUN_WARM=7", "DDPRUN_WARM_ROOM=" + std::string(100, '.')});
  const char* const home = began_[0];
  SetEnvironment(began_.data(), {"RANK=1", "HOME=/root", "DDPRUN_WORKER_TAG=1.2.3"});
  EXPECT_THAT(Environment(), ElementsAre("RANK=1", "HOME=/root", "DDPRUN_WORKER_TAG=1.2.3"));
  EXPECT_THAT(Shown(), UnorderedElementsAre("RANK=1", "HOME=/root", "DDPRUN_WORKER_TAG=1.2.3"));
  EXPECT_EQ(environ[1], home) << "libraries may point to it";
  EXPECT_STREQ(std::getenv("RANK"), "1");
  EXPECT_EQ(std::getenv("DDPRUN_WARM"), nullptr);
}

TEST_F(EnvironmentBlockTest, TheTagStandsThereWhateverElseDoesNot) {
  Begin({"DDPRUN_WARM=7", "DDPRUN_WARM_ROOM=......"});
  const std::string bulk = "BULK=" + std::string(100, 'x');
  SetEnvironment(began_.data(), {bulk, "A=1", "DDPRUN_WORKER_TAG=1.2.3"});
  EXPECT_THAT(Environment(), ElementsAre(bulk, "A=1", "DDPRUN_WORKER_TAG=1.2.3"));
  EXPECT_THAT(Shown(), ElementsAre("DDPRUN_WORKER_TAG=1.2.3", "A=1"));
}

TEST_F(EnvironmentBlockTest, WithoutRoomItIsTheProcesssOwnAllTheSame) {
  Begin({"HOME=/root"});
  SetEnvironment(began_.data(), {"HOME=/home", "RANK=0"});
  EXPECT_THAT(Environment(), ElementsAre("HOME=/home", "RANK=0"));
  ASSERT_EQ(setenv("MORE", "1", 1), 0);
  EXPECT_THAT(Environment(), ElementsAre("HOME=/home", "RANK=0", "MORE=1"));
}

}  // namespace
}  // namespace ddprun::worker
