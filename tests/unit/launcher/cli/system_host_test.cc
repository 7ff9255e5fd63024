// The real machine behind the command line.
#include "launcher/cli/system_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "launcher/cli/options.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class SystemHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "ddprun_host_XXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override {
    for (const char* name : {"/plain", "/program", "/link"}) unlink((folder_ + name).c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  std::string MakeFile(const std::string& name, const std::string& content, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  std::string folder_;
  SystemHost host_;
};

TEST_F(SystemHostTest, Counts) {
  EXPECT_GE(host_.CpuCount(), 1U);
  EXPECT_LT(host_.CudaCount(), 1000U);
}

// ssh's rule for private keys, but for a group, which somebody has chosen.
TEST_F(SystemHostTest, SecretsThatOthersMayRead) {
  for (const mode_t mode : {0600, 0400, 0640, 0440}) {
    EXPECT_TRUE(host_.CheckSecret(MakeFile("plain", "secret", mode)).ok()) << mode;
    chmod((folder_ + "/plain").c_str(), 0600);
  }
  for (const mode_t mode : {0644, 0604, 0666}) {
    const std::string path = MakeFile("plain", "secret", mode);
    EXPECT_THAT(std::string(host_.CheckSecret(path).message()),
                MatchesRegex(".*mode 06.*may read the secret: chmod 600 " + path));
    chmod(path.c_str(), 0600);
  }
  EXPECT_THAT(std::string(host_.CheckSecret(MakeFile("plain", "secret", 0602)).message()),
              HasSubstr("may replace the secret"));
  // No file of ours, and no file.
  EXPECT_TRUE(host_.CheckSecret("/dev/null").ok());
  EXPECT_TRUE(host_.CheckSecret(folder_ + "/missing").ok());
  // Through a link, as Kubernetes mounts secrets; that mount is read-only, this folder isn't.
  chmod((folder_ + "/plain").c_str(), 0644);
  ASSERT_EQ(symlink("plain", (folder_ + "/link").c_str()), 0);
  EXPECT_FALSE(host_.CheckSecret(folder_ + "/link").ok());
}

TEST_F(SystemHostTest, Kinds) {
  const std::string plain = MakeFile("plain", "", 0644);
  ASSERT_EQ(symlink(plain.c_str(), (folder_ + "/link").c_str()), 0);
  EXPECT_EQ(host_.KindOf(plain), Host::PathKind::kFile);
  EXPECT_EQ(host_.KindOf(folder_ + "/link"), Host::PathKind::kFile);
  EXPECT_EQ(host_.KindOf(folder_), Host::PathKind::kDirectory);
  EXPECT_EQ(host_.KindOf("/dev/null"), Host::PathKind::kOther);
  EXPECT_EQ(host_.KindOf(folder_ + "/nothing"), Host::PathKind::kMissing);
}

TEST_F(SystemHostTest, Readable) {
  EXPECT_TRUE(host_.CheckReadable(MakeFile("plain", "", 0644)).ok());
  const absl::Status missing = host_.CheckReadable(folder_ + "/nothing");
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("/nothing': No such file or directory (errno 2, ENOENT)"));
  // The superuser may read everything, and then so may its workers.
  const absl::Status closed = host_.CheckReadable(MakeFile("plain", "", 0));
  EXPECT_EQ(closed.ok(), geteuid() == 0);
}

TEST_F(SystemHostTest, Programs) {
  const std::string program = MakeFile("program", "#!/bin/sh\n", 0755);
  const std::string plain = MakeFile("plain", "", 0644);
  EXPECT_EQ(host_.FindProgram(program).value(), program);
  EXPECT_THAT(std::string(host_.FindProgram(plain).status().message()), HasSubstr("EACCES"));
  EXPECT_THAT(std::string(host_.FindProgram(folder_).status().message()), HasSubstr("EACCES"));
  EXPECT_THAT(host_.FindProgram("sh").value(), testing::EndsWith("/sh"));
  EXPECT_THAT(std::string(host_.FindProgram("no-such-program").status().message()),
              HasSubstr("'no-such-program' in PATH: No such file or directory"));

  const std::string before = ProcessEnvironment("PATH").value_or("");
  ASSERT_EQ(setenv("PATH", folder_.c_str(), 1), 0);
  EXPECT_EQ(host_.FindProgram("program").value(), program);
  EXPECT_THAT(std::string(host_.FindProgram("plain").status().message()), HasSubstr("EACCES"));
  EXPECT_FALSE(host_.FindProgram("sh").ok());
  ASSERT_EQ(setenv("PATH", before.c_str(), 1), 0);
}

TEST_F(SystemHostTest, Files) {
  EXPECT_EQ(host_.ReadFile(MakeFile("plain", "secret\n", 0600)).value(), "secret\n");
  EXPECT_FALSE(host_.ReadFile(folder_ + "/nothing").ok());
  EXPECT_FALSE(host_.ReadFile(folder_).ok());
  EXPECT_LE(host_.ReadFile("/dev/zero").value().size(), 300000U);
}

TEST_F(SystemHostTest, RandomIds) {
  const std::string id = host_.RandomId();
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                               "[0-9a-f]{12}"));
  EXPECT_NE(host_.RandomId(), id);
}

TEST_F(SystemHostTest, WholeCommandLine) {
  const std::string program = MakeFile("program", "#!/bin/sh\n", 0755);
  const CommandLine parsed =
      ParseCommandLine({"--no_python", program, "a"}, ProcessEnvironment, host_);
  const auto* plan = std::get_if<LaunchPlan>(&parsed.command);
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(plan->argv, testing::ElementsAre(program, "a"));
}

TEST(ProcessEnvironment, ReadsVariables) {
  ASSERT_EQ(setenv("DDPRUN_TEST_VARIABLE", "", 1), 0);
  EXPECT_EQ(ProcessEnvironment("DDPRUN_TEST_VARIABLE"), "");
  ASSERT_EQ(unsetenv("DDPRUN_TEST_VARIABLE"), 0);
  EXPECT_EQ(ProcessEnvironment("DDPRUN_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace ddprun::launcher
