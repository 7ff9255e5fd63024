#ifndef DDPRUN_TESTS_UNIT_WORKER_METRICS_TEMPORARY_DIRECTORY_H_
#define DDPRUN_TESTS_UNIT_WORKER_METRICS_TEMPORARY_DIRECTORY_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun::worker {

// A test with a directory of its own.
class WithDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/metrics_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string File(const std::string& name) const { return directory_ + "/" + name; }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_TESTS_UNIT_WORKER_METRICS_TEMPORARY_DIRECTORY_H_
