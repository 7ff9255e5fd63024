// Runs every script of tests/datadriven/rendezvous as one test case. `--rewrite` writes the golden
// texts anew instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/datadriven/rendezvous_world.h"
#include "tests/datadriven/script.h"

namespace ddprun::testing {
namespace {

bool rewrite = false;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The script with the outputs that its commands have now.
std::string Replay(const std::string& text) {
  std::vector<Block> blocks = ParseScript(text);
  RendezvousWorld world;
  for (Block& block : blocks) {
    block.golden.clear();
    for (const std::string& command : block.commands) {
      const std::vector<std::string> output = world.Run(command);
      block.golden.insert(block.golden.end(), output.begin(), output.end());
    }
  }
  return FormatScript(blocks);
}

class ScriptTest : public ::testing::Test {
 public:
  explicit ScriptTest(std::filesystem::path path) : path_(std::move(path)) {}

  void TestBody() override {
    const std::string golden = ReadFile(path_);
    ASSERT_FALSE(golden.empty()) << path_;
    const std::string now = Replay(golden);
    if (rewrite && now != golden) {
      std::ofstream(path_) << now;
      std::cout << "rewritten: " << path_ << "\n";
    } else if (!rewrite) {
      EXPECT_EQ(golden, now) << "if the new output is right: datadriven_test --rewrite";
    }
  }

 private:
  std::filesystem::path path_;
};

}  // namespace
}  // namespace ddprun::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rewrite") == 0) ddprun::testing::rewrite = true;
  }
  std::vector<std::filesystem::path> scripts;
  for (const auto& entry :
       std::filesystem::directory_iterator(DDPRUN_SOURCE_DIR "/tests/datadriven/rendezvous")) {
    if (entry.path().extension() == ".txt") scripts.push_back(entry.path());
  }
  std::sort(scripts.begin(), scripts.end());
  for (const std::filesystem::path& script : scripts) {
    ::testing::RegisterTest(
        "Rendezvous", script.stem().c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [script]() -> ::testing::Test* { return new ddprun::testing::ScriptTest(script); });
  }
  if (scripts.empty()) {
    std::cerr << "no scripts were found\n";
    return 1;
  }
  return RUN_ALL_TESTS();
}
