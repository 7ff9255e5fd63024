#ifndef DDPRUN_TESTS_UNIT_LAUNCHER_OS_TEMP_TREE_H_
#define DDPRUN_TESTS_UNIT_LAUNCHER_OS_TEMP_TREE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun::testing {

// A directory of one test, removed with it; a fake root for probes.
class TempTree {
 public:
  TempTree() {
    std::string name = ::testing::TempDir() + "/ddprun_test.XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempTree() { std::filesystem::remove_all(path_); }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;

  const std::string& path() const { return path_; }
  // Makes a file below it, with its directories. Returns its path.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_UNIT_LAUNCHER_OS_TEMP_TREE_H_
