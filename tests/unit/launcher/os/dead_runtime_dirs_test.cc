#include "launcher/os/runtime_dir.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <string>

#include "base/address.h"
#include "base/fd.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class DeadRuntimeDirs : public ::testing::Test {
 protected:
  // Makes a directory with a socket of that name. Returns the listener.
  Fd Listen(const std::string& folder, const std::string& name) const {
    std::filesystem::create_directories(tree_.path() + "/" + folder);
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = UnixAddress(tree_.path() + "/" + folder + "/" + name);
    EXPECT_TRUE(address.ok());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)), 0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }
  void Remove(absl::Duration least_age = absl::ZeroDuration()) const {
    RemoveDeadRuntimeDirs(tree_.path(), least_age);
  }
  bool Exists(const std::string& name) const {
    return std::filesystem::exists(tree_.path() + "/" + name);
  }
  testing::TempTree tree_;
};

TEST_F(DeadRuntimeDirs, ThoseOfDeadAgentsGo) {
  const Fd lives = Listen("ddprun_lives1", "agent.sock");
  Listen("ddprun_dead01", "agent.sock");
  tree_.Write("ddprun_dead01/marks/0", "page");
  Listen("ddprun_dead02", "service.sock");  // of a ddprun rendezvous
  Remove();
  EXPECT_TRUE(Exists("ddprun_lives1/agent.sock"));
  EXPECT_FALSE(Exists("ddprun_dead01"));
  EXPECT_FALSE(Exists("ddprun_dead02"));
}

// Negative controls: each lacks one thing.
TEST_F(DeadRuntimeDirs, WhatElseStays) {
  Listen("other_dead01", "agent.sock");
  tree_.Write("ddprun_start1/marks/0", "it has no socket yet");
  Listen("ddprun_young1", "agent.sock");
  Remove(absl::Hours(1));
  Listen("ddprun_serve1", "agent.sock");
  const Fd service = Listen("ddprun_serve1", "service.sock");
  std::filesystem::create_directory_symlink(tree_.path() + "/ddprun_young1",
                                            tree_.path() + "/ddprun_link01");
  EXPECT_TRUE(Exists("ddprun_young1"));
  std::filesystem::remove_all(tree_.path() + "/ddprun_young1");
  Remove();
  for (const char* name : {"other_dead01", "ddprun_start1", "ddprun_serve1"}) {
    EXPECT_TRUE(Exists(name)) << name;
  }
}

}  // namespace
}  // namespace ddprun::launcher
