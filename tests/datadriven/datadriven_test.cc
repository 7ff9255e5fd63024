// Runs every script of tests/datadriven/rendezvous and tests/datadriven/supervisor as one test
// case.
// `--rewrite` writes the golden texts anew instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/datadriven/rendezvous_world.h"
#include "tests/datadriven/script.h"
#include "tests/datadriven/supervisor_world.h"
#include "tests/support/trees.h"

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
template <typename World>
std::string Replay(const std::string& text) {
  std::vector<Block> blocks = ParseScript(text);
  World world;
  for (Block& block : blocks) {
    block.golden.clear();
    for (const std::string& command : block.commands) {
      const std::vector<std::string> output = world.Run(command);
      block.golden.insert(block.golden.end(), output.begin(), output.end());
    }
  }
  return FormatScript(blocks);
}

template <typename World>
class ScriptTest : public ::testing::Test {
 public:
  explicit ScriptTest(std::filesystem::path path) : path_(std::move(path)) {}

  void TestBody() override {
    const std::string golden = ReadFile(path_);
    ASSERT_FALSE(golden.empty()) << path_;
    const std::string now = Replay<World>(golden);
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

// False: there are none.
template <typename World>
bool RegisterScripts(const char* suite, const std::string& folder) {
  std::vector<std::filesystem::path> scripts;
  for (const auto& entry :
       std::filesystem::directory_iterator(InSourceTree("tests/datadriven/" + folder))) {
    if (entry.path().extension() == ".txt") scripts.push_back(entry.path());
  }
  std::sort(scripts.begin(), scripts.end());
  for (const std::filesystem::path& script : scripts) {
    ::testing::RegisterTest(
        suite, script.stem().c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [script]() -> ::testing::Test* { return new ScriptTest<World>(script); });
  }
  return !scripts.empty();
}

}  // namespace
}  // namespace ddprun::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rewrite") == 0) ddprun::testing::rewrite = true;
  }
  using namespace ddprun::testing;  // NOLINT(google-build-using-namespace): a test's own file
  if (!RegisterScripts<RendezvousWorld>("Rendezvous", "rendezvous") ||
      !RegisterScripts<SupervisorWorld>("Supervisor", "supervisor")) {
    std::cerr << "no scripts were found\n";
    return 1;
  }
  return RUN_ALL_TESTS();
}
