#include "launcher/os/memory_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class MemoryFilesTest : public ::testing::Test {
 protected:
  // On a machine of 100 MiB; 60 MiB are available.
  static MemoryFiles Files(const MemoryCheckpointPlan& plan) {
    return MemoryFiles(plan, [] { return Memory{.total = 100 * kMiB, .available = 60 * kMiB}; });
  }
  static std::string Refusal(const absl::StatusOr<MemoryFiles::File>& file) {
    return file.ok() ? "it was granted" : file.status().ToString();
  }
  // Opens the file as a worker does.
  static Fd Open(const MemoryFiles::File& file) { return Fd(open(file.path.c_str(), O_RDWR)); }
};

TEST_F(MemoryFilesTest, AFileOutlivesTheWorkerThatFillsIt) {
  MemoryFiles files = Files({});
  EXPECT_EQ(files.BytesHeld(), std::nullopt);
  EXPECT_EQ(files.Keep(0, 0, 0)->path, "") << "there is none";
  EXPECT_EQ(files.BytesHeld(), std::nullopt);
  const MemoryFiles::File file = *files.Keep(0, 0, 5 * kMiB);
  EXPECT_EQ(file.bytes, 5 * kMiB);
  EXPECT_EQ(files.BytesHeld(), 0U) << "nothing is taken before it is used";
  {
    const Fd worker = Open(file);
    ASSERT_EQ(pwrite(worker.get(), "state", 5, kMiB), 5);
  }
  EXPECT_EQ(files.BytesHeld(), 4096U);
  const Fd next = Open(*files.Keep(0, 0, 0));
  char state[5];
  ASSERT_EQ(pread(next.get(), state, 5, kMiB), 5);
  EXPECT_EQ(std::string(state, 5), "state");
  EXPECT_EQ(files.Keep(0, 0, 3 * kMiB)->bytes, 5 * kMiB) << "it is large enough";
}

TEST_F(MemoryFilesTest, EachWorkerAndSlotHasAFileOfItsOwn) {
  MemoryFiles files = Files({});
  const Fd one = Open(*files.Keep(0, 0, kMiB));
  const Fd other = Open(*files.Keep(0, 1, kMiB));
  const Fd third = Open(*files.Keep(1, 0, kMiB));
  ASSERT_EQ(pwrite(one.get(), "1", 1, 0), 1);
  ASSERT_EQ(pwrite(other.get(), "2", 1, 0), 1);
  char byte = 'x';
  ASSERT_EQ(pread(third.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, '\0');
  EXPECT_TRUE(files.Keep(0, 47, kMiB).ok());
  EXPECT_THAT(Refusal(files.Keep(0, 48, kMiB)), StartsWith("INVALID_ARGUMENT"));
}

TEST_F(MemoryFilesTest, ALargerFileIsNewAndEmpty) {
  MemoryFiles files = Files({});
  {
    const Fd small = Open(*files.Keep(0, 0, kMiB));
    ASSERT_EQ(pwrite(small.get(), "1", 1, 0), 1);
  }
  const MemoryFiles::File file = *files.Keep(0, 0, 2 * kMiB);
  EXPECT_EQ(file.bytes, 2 * kMiB);
  EXPECT_EQ(files.BytesHeld(), 0U) << "the old one is freed";
}

TEST_F(MemoryFilesTest, NoWorkerTakesMoreThanItWasGranted) {
  MemoryFiles files = Files({});
  const Fd worker = Open(*files.Keep(0, 0, kMiB));
  EXPECT_EQ(ftruncate(worker.get(), 2 * kMiB), -1);
  EXPECT_EQ(pwrite(worker.get(), "1", 1, kMiB), -1);
  EXPECT_EQ(ftruncate(worker.get(), 0), -1) << "a peer that maps it would fault";
}

TEST_F(MemoryFilesTest, BoundsAreKept) {
  MemoryFiles by_default = Files({});
  ASSERT_TRUE(by_default.Keep(0, 0, 15 * kMiB).ok());
  ASSERT_TRUE(by_default.Keep(1, 0, 10 * kMiB).ok());
  EXPECT_EQ(Refusal(by_default.Keep(0, 1, kMiB)),
            "RESOURCE_EXHAUSTED: memory for checkpoints: this node's workers have 25.0 MiB and ask "
            "for 1.0 MiB more; --memory_checkpoints allows 25.0 MiB");
  EXPECT_THAT(Refusal(by_default.Keep(1, 0, UINT64_MAX)), StartsWith("RESOURCE_EXHAUSTED"));
  EXPECT_EQ(by_default.Keep(1, 0, 0)->bytes, 10 * kMiB) << "a refusal changes nothing";

  MemoryFiles of_percent = Files({.percent = 1});
  EXPECT_TRUE(of_percent.Keep(0, 0, kMiB).ok());
  EXPECT_FALSE(of_percent.Keep(0, 1, 1).ok());

  MemoryFiles off = Files({.bytes = 0});
  EXPECT_THAT(Refusal(off.Keep(0, 0, 1)), HasSubstr("--memory_checkpoints allows 0 bytes"));

  MemoryFiles large = Files({.bytes = 1000 * kMiB});
  EXPECT_TRUE(large.Keep(0, 0, 30 * kMiB).ok());
  EXPECT_THAT(Refusal(large.Keep(1, 0, 31 * kMiB)),
              AllOf(StartsWith("RESOURCE_EXHAUSTED"),
                    HasSubstr("asks for 31.0 MiB, of the 60.0 MiB that are available at most")));

  MemoryFiles blind({}, [] { return std::nullopt; });
  EXPECT_FALSE(blind.Keep(0, 0, 1).ok()) << "a quarter of what isn't known";
}

}  // namespace
}  // namespace ddprun::launcher
