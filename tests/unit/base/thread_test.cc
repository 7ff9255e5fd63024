#include "base/thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

namespace ddprun {
namespace {

TEST(ThreadTest, Runs) {
  bool ran = false;
  absl::StatusOr<std::thread> thread = StartThread("a test", [&ran] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);
}

// Sanitizers map memory of their own with each thread.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Ends the process with 0 when there was no room for another thread's stack, and it was said.
[[noreturn]] void StartThreadsWithoutRoom() {
  const rlimit none{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &none);  // nothing can be mapped any more
  absl::Status status;
  // glibc keeps the stacks of some that have ended.
  for (int i = 0; i < 16 && status.ok(); ++i) {
    absl::StatusOr<std::thread> thread = StartThread("a test", [] { pause(); });
    status = thread.status();
    if (thread.ok()) thread->detach();
  }
  const rlimit all{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &all);
  std::_Exit(absl::IsResourceExhausted(status) ? 0 : 1);
}

TEST(ThreadTest, SaysWhereThereIsNoRoom) {
  EXPECT_EXIT(StartThreadsWithoutRoom(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace ddprun
