#include "launcher/core/stack_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

TEST(WithoutEmptyStacks, OfPySpy) {
  EXPECT_EQ(
      WithoutEmptyStacks("Process 7: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
                         "Thread 7 (idle): \"MainThread\"\n    wait (threading.py:320)\n"
                         "    <module> (train.py:9)\n"
                         "Thread 8 (active): \"pin_memory\"\n"),
      "Thread 7 (idle): \"MainThread\"\n    wait (threading.py:320)\n    <module> (train.py:9)\n");
}

TEST(WithoutEmptyStacks, OfGdb) {
  EXPECT_EQ(WithoutEmptyStacks("[Thread debugging using libthread_db enabled]\n\n"
                               "Thread 2 (LWP 8):\n\nThread 1 (LWP 7 \"python3\"):\n"
                               "#0  0x00007f in poll () from libc.so.6\n#1  0x0001 in ?? ()\n"
                               "[Inferior 1 (process 7) detached]\n"),
            "Thread 1 (LWP 7 \"python3\"):\n#0  0x00007f in poll () from libc.so.6\n#1  0x0001 in "
            "?? ()\n");
}

// Symbols of libraries aren't read (stack_probe.cc), in which many a thread has all its functions.
TEST(WithoutEmptyStacks, NorThoseWithoutANameInThem) {
  EXPECT_EQ(WithoutEmptyStacks("Thread 2 (LWP 8):\n#0  0x1 in ?? ()\n#1  0x2 in ?? ()\n"
                               "Thread 1 (LWP 7):\n#0  0x3 in ?? ()\n#1  0x4 in Train ()\n"),
            "Thread 1 (LWP 7):\n#0  0x3 in ?? ()\n#1  0x4 in Train ()\n");
}

TEST(WithoutEmptyStacks, AGreetingIsNoStack) {
  for (const char* text : {"", "\n", "Process 7: python3\nPython v3.11.2 (/usr/bin/python3.11)\n\n",
                           "Thread 1 (LWP 7):\n", "#", "ptrace: Operation not permitted.\n"}) {
    EXPECT_EQ(WithoutEmptyStacks(text), "") << text;
  }
}

TEST(StackFact, SaysHowTheNextReportHasMore) {
  EXPECT_EQ(StackFact("py-spy", true, true), "");
  EXPECT_EQ(StackFact("gdb", true, false), "");
  EXPECT_THAT(StackFact("gdb", true, true), HasSubstr("python3 -m pip install py-spy"));
  EXPECT_THAT(StackFact("", false, true), HasSubstr("python3 -m pip install py-spy"));
  EXPECT_THAT(StackFact("", false, false), HasSubstr("apt install gdb"));
  EXPECT_THAT(StackFact("py-spy", false, true), HasSubstr("ptrace_scope"));
}

}  // namespace
}  // namespace ddprun::launcher
