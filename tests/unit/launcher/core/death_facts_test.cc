#include "launcher/core/death_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const WorkerEnd kSegfault{{.rank = 3, .pid = 42, .signal = SIGSEGV, .core_dumped = true}};

TEST(CorePatternTest, NamesTheFile) {
  const auto path = [](const char* pattern, bool uses_pid = false) {
    return ExpandCorePattern(pattern, uses_pid, kSegfault, "host1", "/dir").path;
  };
  EXPECT_EQ(path("core\n"), "/dir/core");
  EXPECT_EQ(path("core", true), "/dir/core.42");
  EXPECT_EQ(path("/tmp/core.%p"), "/tmp/core.42");
  EXPECT_EQ(path("/tmp/core.%p", true), "/tmp/core.42");
  EXPECT_EQ(path("/c/%h-%s-%P-%%-%e-%t"), "/c/host1-11-42-%-*-*");
  EXPECT_EQ(path("/tmp/core%"), "/tmp/core");
}

TEST(CorePatternTest, NamesTheProgramThatGetsIt) {
  const CorePlace place = ExpandCorePattern("|/usr/lib/systemd/systemd-coredump %P %u", false,
                                            kSegfault, "host1", "/dir");
  EXPECT_EQ(place.path, "");
  EXPECT_EQ(place.program, "/usr/lib/systemd/systemd-coredump");
  EXPECT_EQ(ExpandCorePattern("|", false, kSegfault, "h", "/").program, "");
}

TEST(LimitFactsTest, OnlyThoseThatTheEndSpeaksOf) {
  const Limits limits{.core_bytes = 0,
                      .open_files = 1024,
                      .processes = 100,
                      .locked_bytes = 65536,
                      .memory_bytes = 3 << 20,
                      .file_bytes = 10,
                      .cpu_seconds = 5};
  const auto facts = [&](int signal, const char* words, bool core = false) {
    return LimitFacts({{.signal = signal, .core_dumped = core, .message = words}}, limits);
  };
  EXPECT_THAT(facts(0, "ValueError"), IsEmpty());
  EXPECT_THAT(facts(SIGKILL, ""), IsEmpty());
  EXPECT_THAT(facts(SIGSEGV, ""), ElementsAre(HasSubstr("no core file was written")));
  EXPECT_THAT(facts(SIGSEGV, "", true), IsEmpty());
  EXPECT_THAT(facts(0, "OSError: [Errno 24] Too many open files"),
              ElementsAre("limit: at most 1024 open files (ulimit -n)"));
  EXPECT_THAT(facts(0, "RuntimeError: can't start new thread"),
              ElementsAre("limit: at most 100 processes and threads of this user (ulimit -u)"));
  EXPECT_THAT(facts(0, "ibv_reg_mr_iova2 failed"),
              ElementsAre("limit: at most 64.0 KiB of locked memory (ulimit -l)"));
  EXPECT_THAT(facts(0, "std::bad_alloc"),
              ElementsAre("limit: at most 3.0 MiB of address space (ulimit -v)"));
  EXPECT_THAT(facts(SIGXCPU, "", true),
              ElementsAre("limit: at most 5 seconds of CPU time (ulimit -t)"));
  EXPECT_THAT(facts(SIGXFSZ, "", true),
              ElementsAre("limit: at most 10 bytes in one file (ulimit -f)"));
  EXPECT_THAT(LimitFacts({{.message = "too many open files"}}, {}), IsEmpty()) << "unlimited";
}

TEST(FullDiskFactTest, NamesWhatIsFull) {
  const uint64_t gib = uint64_t{1} << 30;
  const FileSystem full{.folder = "/scratch", .size_bytes = gib, .free_bytes = 4096};
  const FileSystem empty{.folder = "/home", .size_bytes = gib, .free_bytes = gib / 2};
  FileSystem of_files = empty;
  of_files.files = 100;
  EXPECT_EQ(FullDiskFact({}), "");
  EXPECT_EQ(FullDiskFact({empty}), "");
  EXPECT_EQ(FullDiskFact({empty, full}), "disk: /scratch is full (1.0 GiB)");
  EXPECT_EQ(FullDiskFact({of_files, full}),
            "disk: /home is full (1.0 GiB, all 100 inodes), /scratch is full (1.0 GiB)");
  // Kinds that have no size, as /proc, and a small one with room.
  EXPECT_EQ(FullDiskFact({{.folder = "/proc"}}), "");
  EXPECT_EQ(FullDiskFact({{.folder = "/s", .size_bytes = 65536, .free_bytes = 32768}}), "");
}

TEST(MemoryFactTest, SaysWhetherTheKillerWasAtWork) {
  const WorkerEnd killed{{.signal = SIGKILL}};
  EXPECT_EQ(MemoryFact({{.signal = SIGSEGV}}, {.cgroup_kills = 1}), "");
  EXPECT_EQ(MemoryFact(killed, {}), "") << "this kernel reports nothing";
  EXPECT_EQ(MemoryFact(killed, {.cgroup = "/job",
                                .cgroup_kills = 1,
                                .host_kills = 1,
                                .limit_bytes = 2U << 20,
                                .peak_bytes = 2U << 20}),
            "memory: the kernel killed 1 process of the cgroup /job for lack of memory in this "
            "generation; the cgroup had at most 2.0 MiB of 2.0 MiB");
  EXPECT_THAT(MemoryFact(killed, {.cgroup_kills = 0, .host_kills = 2}),
              StartsWith("memory: perhaps the out-of-memory killer, which killed 2 processes"));
  EXPECT_THAT(MemoryFact(killed, {.host_kills = 1}), Not(StartsWith(rendezvous::kOutOfMemoryFact)))
      << "another job's process may be the one that was killed";
  EXPECT_THAT(MemoryFact(killed, {.cgroup_kills = 0, .peak_bytes = 512}),
              AllOf(StartsWith("memory: not the out-of-memory killer"), HasSubstr("512 bytes")));
}

}  // namespace
}  // namespace ddprun::launcher
