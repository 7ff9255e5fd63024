#include "launcher/os/python_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

constexpr char kFact[] = "module: /usr/bin/python3 ran the script, and has no ";

std::string Words(const std::string& module) {
  return absl::StrCat("Traceback (most recent call last):\n  File \"train.py\", line 1\n",
                      "ModuleNotFoundError: No module named '", module, "'\n");
}

class PythonModule : public ::testing::Test {
 protected:
  // `start`'s paths are in the tree, where /repo is a repository.
  std::string Fact(const std::string& words, const std::map<std::string, std::string>& variables,
                   const std::string& entry_point = "train.py", bool is_module = false) const {
    const PythonStart start = {
        .python = "/usr/bin/python3",
        .entry_point = entry_point,
        .is_module = is_module,
        .folder = tree_.path() + "/repo",
        .environment = [&](const std::string& name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        }};
    return MissingModuleFact(words, start);
  }
  // What it says of a module after kFact.
  std::string Where(const std::string& module, const std::string& entry_point = "train.py",
                    const std::map<std::string, std::string>& variables = {}) const {
    const std::string fact = Fact(Words(module), variables, entry_point);
    const std::string begin = absl::StrCat(kFact, module, "; ");
    EXPECT_EQ(fact.substr(0, begin.size()), begin);
    return absl::StrReplaceAll(fact.substr(std::min(fact.size(), begin.size())), {{Root(), ""}});
  }
  std::string Root() const { return std::filesystem::path(tree_.path()).lexically_normal(); }
  std::string Environment(const std::string& name, const std::string& package) const {
    tree_.Write(name + "/bin/python3", "");
    if (!package.empty()) tree_.Write(name + "/lib/python3.11/" + package, "");
    return tree_.path() + "/" + name;
  }
  void SetUp() override { tree_.Write("repo/.git/HEAD", ""); }
  testing::TempTree tree_;
};

TEST_F(PythonModule, TheOtherPythonThatHasIt) {
  const std::string with = Environment("with", "site-packages/torch/__init__.py");
  const std::string without = Environment("without", "site-packages/numpy/__init__.py");
  const std::string python = with + "/bin/python3";
  const std::string cure = ") has it: export PYTHON_EXEC=" + python + " runs it with that one";
  const auto fact = [&](const std::map<std::string, std::string>& variables) {
    return Fact(Words("torch"), variables);
  };
  const std::string has_none = absl::StrCat(kFact, "torch");
  EXPECT_EQ(fact({{"VIRTUAL_ENV", with}}), has_none + "; " + python + " ($VIRTUAL_ENV" + cure);
  EXPECT_EQ(fact({{"VIRTUAL_ENV", without}, {"CONDA_PREFIX", with}}),
            has_none + "; " + python + " ($CONDA_PREFIX" + cure);
  EXPECT_EQ(fact({{"PATH", "/nowhere/bin:" + with + "/bin"}}),
            has_none + "; " + python + " (PATH" + cure);
  const std::string package = has_none + "; PyPI's package torch has it";
  EXPECT_EQ(fact({{"PATH", without + "/bin:" + with + "/bin"}}), package);
  EXPECT_EQ(fact({{"VIRTUAL_ENV", without}, {"CONDA_PREFIX", "/nowhere"}}), package);
  EXPECT_EQ(fact({}), package);
}

TEST_F(PythonModule, PlacesOfPackages) {
  for (const char* place : {"dist-packages/mine/__init__.py", "site-packages/mine.py"}) {
    EXPECT_THAT(Fact(Words("mine"), {{"VIRTUAL_ENV", Environment("env", place)}}),
                ::testing::HasSubstr("has it"));
  }
}

TEST_F(PythonModule, NearTheScript) {
  tree_.Write("repo/mymodels/__init__.py", "");
  tree_.Write("repo/src/core.py", "");
  tree_.Write("repo/lib/below.py", "");
  tree_.Write("repo/images/cat.png", "");
  EXPECT_EQ(Where("mymodels", "scripts/train.py"),
            "it lies in /repo, where this Python doesn't look");
  EXPECT_EQ(Where("core"), "it lies in /repo/src, where this Python doesn't look");
  EXPECT_EQ(Where("below"), "it lies in /repo/lib, where this Python doesn't look");
  // No file of Python is in it.
  EXPECT_EQ(Where("images"), "it isn't near the script either (/repo, /repo/src)");
  tree_.Write("repo/pyproject.toml", "");
  EXPECT_EQ(Where("core"),
            "it lies in /repo/src, where this Python doesn't look, of the project /repo");
}

// A folder of that name below says nothing of a library that everybody knows.
TEST_F(PythonModule, WellKnownLibraries) {
  tree_.Write("repo/stubs/yaml/__init__.py", "");
  EXPECT_EQ(Where("cv2"), "PyPI's package opencv-python has it");
  EXPECT_EQ(Where("yaml"), "PyPI's package PyYAML has it");
  EXPECT_EQ(Where("apex"), "it isn't near the script either (/repo)") << "PyPI's is a stranger's";
}

TEST_F(PythonModule, NamesThatAreMisspelled) {
  tree_.Write("repo/mymodels/vision.py", "");
  EXPECT_EQ(Where("mymodel"), "/repo has mymodels: is the name misspelled?");
  EXPECT_EQ(Where("mymodels.visoin"), "/repo/mymodels has vision: is the name misspelled?");
  EXPECT_EQ(Where("mymodels.audio"), "mymodels is /repo/mymodels");
  EXPECT_EQ(Where("json.audio"), "its json has no part audio");
}

TEST_F(PythonModule, AFileThatHidesALibrary) {
  tree_.Write("repo/torch.py", "");
  EXPECT_EQ(Where("torch.nn"),
            "/repo/torch.py is imported as torch, and hides a package of that name");
}

TEST_F(PythonModule, PythonPathIsSearched) {
  tree_.Write("repo/lib/known/__init__.py", "");
  EXPECT_EQ(Where("known.x", "train.py", {{"PYTHONPATH", tree_.path() + "/repo/lib"}}),
            "known is /repo/lib/known");
}

TEST_F(PythonModule, ModulesOfDashM) {
  tree_.Write("repo/scripts/train.py", "");
  EXPECT_EQ(Fact("/usr/bin/python3: No module named scripts.trian\n", {}, "scripts.trian", true),
            absl::StrCat(kFact, "scripts.trian; ", Root(),
                         "/repo/scripts has train: is the name misspelled?"));
  EXPECT_EQ(Fact("/opt/bin/python3.11: No module named scripts.trian\n", {}, "scripts.trian", true),
            Fact("/usr/bin/python3: No module named scripts.trian\n", {}, "scripts.trian", true));
  EXPECT_EQ(Fact("tool: No module named scripts.trian\n", {}, "scripts.trian", true), "");
}

TEST_F(PythonModule, OtherWords) {
  EXPECT_EQ(Fact("", {}), "");
  EXPECT_EQ(Fact("ImportError: cannot import name 'x' from 'torch'", {}), "");
  EXPECT_EQ(Fact("ModuleNotFoundError: No module named '", {}), "");
  EXPECT_EQ(Fact(Words("../etc"), {}), "");
}

}  // namespace
}  // namespace ddprun::launcher
