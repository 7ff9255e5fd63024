#include "launcher/os/python_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

constexpr char kWords[] =
    "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n"
    "ModuleNotFoundError: No module named 'torch.nn'\n";
constexpr char kFact[] = "module: /usr/bin/python3 ran the script, and has no torch";

class PythonModule : public ::testing::Test {
 protected:
  std::string Fact(const std::map<std::string, std::string>& variables,
                   const std::string& words = kWords) const {
    return MissingModuleFact(words, "/usr/bin/python3",
                             [&](const std::string& name) -> std::optional<std::string> {
                               const auto found = variables.find(name);
                               if (found == variables.end()) return std::nullopt;
                               return found->second;
                             });
  }
  std::string Environment(const std::string& name, const std::string& package) const {
    tree_.Write(name + "/bin/python3", "");
    if (!package.empty()) tree_.Write(name + "/lib/python3.11/" + package, "");
    return tree_.path() + "/" + name;
  }
  testing::TempTree tree_;
};

TEST_F(PythonModule, TheOtherPythonThatHasIt) {
  const std::string with = Environment("with", "site-packages/torch/__init__.py");
  const std::string without = Environment("without", "site-packages/numpy/__init__.py");
  const std::string python = with + "/bin/python3";
  const std::string cure = ") has it: export PYTHON_EXEC=" + python + " runs it with that one";
  EXPECT_EQ(Fact({{"VIRTUAL_ENV", with}}), kFact + ("; " + python + " ($VIRTUAL_ENV" + cure));
  EXPECT_EQ(Fact({{"VIRTUAL_ENV", without}, {"CONDA_PREFIX", with}}),
            kFact + ("; " + python + " ($CONDA_PREFIX" + cure));
  EXPECT_EQ(Fact({{"PATH", "/nowhere/bin:" + with + "/bin"}}),
            kFact + ("; " + python + " (PATH" + cure));
  EXPECT_EQ(Fact({{"PATH", without + "/bin:" + with + "/bin"}}), kFact);
  EXPECT_EQ(Fact({{"VIRTUAL_ENV", without}, {"CONDA_PREFIX", "/nowhere"}}), kFact);
  EXPECT_EQ(Fact({}), kFact);
}

TEST_F(PythonModule, PlacesOfPackages) {
  EXPECT_THAT(Fact({{"VIRTUAL_ENV", Environment("debian", "dist-packages/torch/__init__.py")}}),
              ::testing::HasSubstr("has it"));
  EXPECT_THAT(Fact({{"VIRTUAL_ENV", Environment("file", "site-packages/torch.py")}}),
              ::testing::HasSubstr("has it"));
}

TEST_F(PythonModule, OtherWords) {
  EXPECT_EQ(Fact({}, ""), "");
  EXPECT_EQ(Fact({}, "ImportError: cannot import name 'x' from 'torch'"), "");
  EXPECT_EQ(Fact({}, "ModuleNotFoundError: No module named '"), "");
  EXPECT_EQ(Fact({}, "ModuleNotFoundError: No module named '../etc'"), "");
}

}  // namespace
}  // namespace ddprun::launcher
