#include "launcher/os/files.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class FoldersTest : public ::testing::Test {
 protected:
  bool Exists(const std::string& name) const {
    return std::filesystem::exists(tree_.path() + "/" + name);
  }
  testing::TempTree tree_;
};

TEST_F(FoldersTest, MakesWhatIsMissing) {
  EXPECT_TRUE(MakeFolders(tree_.path() + "/a/b/c").ok());
  EXPECT_TRUE(MakeFolders(tree_.path() + "/a/b/c").ok());
  EXPECT_TRUE(Exists("a/b/c"));
}

TEST_F(FoldersTest, AFolderToWriteIn) {
  EXPECT_TRUE(MakeWritableFolder(tree_.path() + "/w/x").ok());
  EXPECT_TRUE(Exists("w/x"));
  const absl::Status status = MakeWritableFolder("/proc/self/fd/none");
  EXPECT_TRUE(absl::StrContains(status.message(), "/proc/self/fd/none")) << status;
  EXPECT_FALSE(MakeWritableFolder("/proc/self/fdinfo").ok() && geteuid() != 0);
}

TEST_F(FoldersTest, AFileIsTriedAndGone) {
  EXPECT_TRUE(TryFolder(tree_.path()).ok());
  EXPECT_TRUE(std::filesystem::is_empty(tree_.path()));
  const absl::Status status = TryFolder("/proc");
  EXPECT_TRUE(absl::StrContains(status.message(), "/proc")) << status;
}

// The order is that of Python's tempfile, which doesn't have the last one.
TEST_F(FoldersTest, TemporaryOnesInTheirOrder) {
  setenv("TMPDIR", "relative", 1);
  setenv("TEMP", "/temp", 1);
  setenv("TMP", "", 1);
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(TemporaryFolders(),
            (std::vector<std::string>{here + "/relative", "/temp", "/tmp", "/var/tmp", "/usr/tmp",
                                      here, "/dev/shm"}));
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) unsetenv(name);
}

TEST_F(FoldersTest, SaysWhichFolderCouldNotBeMade) {
  const std::string file = tree_.Write("file", "");
  const absl::Status status = MakeFolders(file + "/a");
  EXPECT_TRUE(absl::StrContains(status.message(), file + "/a")) << status;
}

TEST_F(FoldersTest, RemovesOnlyWhatIsEmpty) {
  ASSERT_TRUE(MakeFolders(tree_.path() + "/run/attempt_0/0").ok());
  ASSERT_TRUE(MakeFolders(tree_.path() + "/run/attempt_1/0").ok());
  tree_.Write("run/attempt_1/1/error.json", "{}");
  RemoveEmptyFolders(tree_.path() + "/run");
  EXPECT_FALSE(Exists("run/attempt_0"));
  EXPECT_FALSE(Exists("run/attempt_1/0"));
  EXPECT_TRUE(Exists("run/attempt_1/1/error.json"));
}

TEST_F(FoldersTest, LeavesWhatASymbolicLinkLeadsTo) {
  ASSERT_TRUE(MakeFolders(tree_.path() + "/elsewhere/empty").ok());
  ASSERT_TRUE(MakeFolders(tree_.path() + "/run").ok());
  std::filesystem::create_symlink(tree_.path() + "/elsewhere", tree_.path() + "/run/link");
  RemoveEmptyFolders(tree_.path() + "/run");
  EXPECT_TRUE(Exists("run/link"));
  RemoveFolder(tree_.path() + "/run");
  EXPECT_FALSE(Exists("run"));
  EXPECT_TRUE(Exists("elsewhere/empty"));
}

TEST_F(FoldersTest, NothingIsNoFolder) {
  RemoveEmptyFolders("");
  RemoveFolder("");
  RemoveEmptyFolders(tree_.path() + "/missing");
  EXPECT_TRUE(std::filesystem::exists(tree_.path()));
}

}  // namespace
}  // namespace ddprun::launcher
