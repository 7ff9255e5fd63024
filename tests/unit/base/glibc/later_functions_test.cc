// Each function beside glibc's own, which this machine has.
#include "base/glibc/later_functions.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun::glibc {
namespace {

// The status with which `body` ends in a child of its own, or 1000 and the signal that killed it.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(LaterNames, AreGlibcsForEachNumber) {
  for (int number = -2; number < 4200; ++number) {
    EXPECT_STREQ(sigabbrev_np(number), SignalAbbreviation(number)) << number;
    EXPECT_STREQ(sigdescr_np(number), SignalDescription(number)) << number;
    EXPECT_STREQ(strerrorname_np(number), ErrorName(number)) << number;
    EXPECT_STREQ(strerrordesc_np(number), ErrorDescription(number)) << number;
  }
}

TEST(LaterRandom, FillsAllAndNothingElse) {
  std::set<uint32_t> ours;
  std::set<uint32_t> glibcs;
  for (int i = 0; i < 1000; ++i) {
    ours.insert(Random());
    glibcs.insert(arc4random());
  }
  EXPECT_GT(ours.size(), 990u);  // as many as glibc's, but for a repetition in a million draws
  EXPECT_GT(glibcs.size(), 990u);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{255}, size_t{257}, size_t{100'000}}) {
    std::vector<unsigned char> bytes(size + 16, 0);
    std::vector<bool> changed(size + 16, false);
    for (int i = 0; i < 8; ++i) {  // a byte stays 0 eight times once in 2^64
      FillRandomly(bytes.data() + 8, size);
      for (size_t at = 0; at < bytes.size(); ++at) changed[at] = changed[at] || bytes[at] != 0;
    }
    for (size_t at = 0; at < bytes.size(); ++at) {
      EXPECT_EQ(at >= 8 && at < 8 + size, changed[at]) << at << " of " << size;
    }
  }
}

// Which of the descriptors 50 to 69 are open, and whether an exec closes them: "o", "x", ".".
std::string Descriptors() {
  std::string text;
  for (int fd = 50; fd < 70; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    text += flags < 0 ? '.' : (flags & FD_CLOEXEC) != 0 ? 'x' : 'o';
  }
  return text;
}

using Closer = int (*)(unsigned, unsigned, int);

// What `closer` returns, its errno and what is open afterwards, in a process with descriptors.
std::string AfterClosing(Closer closer, unsigned first, unsigned last, int flags) {
  int words[2];
  EXPECT_EQ(0, pipe(words));
  EXPECT_EQ(0, InChild([&] {
              dup2(words[1], 1);
              const int null = open("/dev/null", O_RDONLY);
              for (const int fd : {50, 51, 53, 58, 59, 60, 68}) dup2(null, fd);
              errno = 0;
              const int result = closer(first, last, flags);
              const std::string text = std::to_string(result) + " " + std::to_string(errno) + " " +
                                       Descriptors() + " " + std::to_string(fcntl(null, F_GETFD));
              return write(1, text.data(), text.size()) > 0 ? 0 : 1;
            }));
  char text[200] = {};
  EXPECT_GT(read(words[0], text, sizeof(text) - 1), 0);
  close(words[0]);
  close(words[1]);
  return text;
}

class LaterCloseRange : public testing::TestWithParam<Closer> {};

TEST_P(LaterCloseRange, DoesWhatGlibcsDoes) {
  for (const int flags : std::vector<int>{0, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE,
                                          CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC, 1, 8, -1}) {
    for (const auto& [first, last] : std::vector<std::pair<unsigned, unsigned>>{
             {50, UINT_MAX}, {51, 59}, {53, 53}, {61, 67}, {69, 50}, {INT_MAX, UINT_MAX}}) {
      EXPECT_EQ(AfterClosing(&close_range, first, last, flags),
                AfterClosing(GetParam(), first, last, flags))
          << first << " to " << last << ", flags " << flags;
    }
  }
}

TEST_P(LaterCloseRange, ClosesAsManyAsAProcessHas) {
  EXPECT_EQ(0, InChild([&] {
              rlimit limit{};
              getrlimit(RLIMIT_NOFILE, &limit);
              const int null = open("/dev/null", O_RDONLY);
              int last = null;
              // To the limit: there is none left for a list.
              for (int fd = null; fd >= 0 && fd < 5000; fd = dup(null)) last = fd;
              if (last < static_cast<int>(std::min<rlim_t>(limit.rlim_cur - 1, 4999))) return 2;
              if (GetParam()(4, UINT_MAX, 0) != 0) return 3;
              for (int fd = 4; fd <= last; ++fd) {
                if (fcntl(fd, F_GETFD) >= 0) return 4;
              }
              return fcntl(3, F_GETFD) >= 0 ? 0 : 5;
            }));
}

INSTANTIATE_TEST_SUITE_P(All, LaterCloseRange, testing::Values(&CloseRange, &CloseRangeByHand));

// Without a free descriptor for the list in /proc, each number below the limit is closed.
TEST(LaterCloseRangeByHand, WorksWithoutTheList) {
  EXPECT_EQ(0, InChild([] {
              const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
              setrlimit(RLIMIT_NOFILE, &limit);
              while (dup(2) >= 0) {
              }
              if (CloseRangeByHand(50, UINT_MAX, CLOSE_RANGE_CLOEXEC) != 0) return 2;
              if (Descriptors() != std::string(20, 'x') || fcntl(49, F_GETFD) != 0) return 3;
              if (CloseRangeByHand(50, UINT_MAX, 0) != 0) return 4;
              return Descriptors() == std::string(20, '.') && fcntl(49, F_GETFD) == 0 ? 0 : 5;
            }));
}

using FromAdder = int (*)(posix_spawn_file_actions_t*, int);

// The descriptors of a program that is spawned, as its shell lists them.
std::string OfSpawned(FromAdder adder, int first) {
  int words[2];
  EXPECT_EQ(0, pipe2(words, O_CLOEXEC));
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const int fd : {50, 51, 59}) dup2(null, fd);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, words[1], 1);
  posix_spawn_file_actions_adddup2(&actions, null, 53);
  const int added = adder(&actions, first);
  char shell[] = "sh";
  char command[] = "-c";
  char script[] = "echo /proc/$$/fd/5[0-9]";
  char* const arguments[] = {shell, command, script, nullptr};
  pid_t child = 0;
  EXPECT_EQ(0, posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {50, 51, 59, null, words[1]}) close(fd);
  std::string text = absl::StrCat(added, ":");
  char bytes[500];
  for (ssize_t n = 0; (n = read(words[0], bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(n));
  }
  close(words[0]);
  waitpid(child, nullptr, 0);
  return absl::StrReplaceAll(text, {{absl::StrCat("/proc/", child, "/fd/"), " "}, {"\n", ""}});
}

TEST(LaterCloseFrom, ClosesWhatGlibcsCloses) {
  EXPECT_EQ("0: 50  51  53  59", OfSpawned(&AddCloseFrom, 1000));  // negative control
  for (const int first : {-1, 54, 59, 60, INT_MAX}) {
    EXPECT_EQ(OfSpawned(&posix_spawn_file_actions_addclosefrom_np, first),
              OfSpawned(&AddCloseFrom, first))
        << first;
  }
  EXPECT_EQ("0: 50  51  53", OfSpawned(&AddCloseFrom, 54));
}

int handlers_run = 0;

using Forker = pid_t (*)();

class LaterFork : public testing::TestWithParam<Forker> {};

// Forks in a thread: its id isn't the process's. The child's exit status is what it finds.
int ForkInThread(Forker forker) {
  int status = -1;
  std::thread([&] {
    const pid_t parent = getpid();
    const pid_t child = forker();
    if (child == 0) {
      if (getppid() != parent || handlers_run != 0) _exit(1);
      pthread_mutexattr_t attributes;
      pthread_mutexattr_init(&attributes);
      pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
      pthread_mutex_t mutex;
      pthread_mutex_init(&mutex, &attributes);
      if (pthread_mutex_lock(&mutex) != 0 || pthread_mutex_lock(&mutex) != EDEADLK) _exit(2);
      if (mutex.__data.__owner != gettid() || gettid() != getpid()) _exit(3);
      signal(SIGUSR1, [](int) { _exit(77); });
      raise(SIGUSR1);
      _exit(4);
    }
    waitpid(child, &status, 0);
  }).join();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_P(LaterFork, IsAForkWithoutHandlers) {
  static const int registered = pthread_atfork([] { ++handlers_run; }, nullptr, nullptr);
  ASSERT_EQ(0, registered);
  handlers_run = 0;
  EXPECT_EQ(77, ForkInThread(GetParam()));
  EXPECT_EQ(0, handlers_run);
  // Negative control: with fork(3) they run.
  EXPECT_EQ(1, ForkInThread(&fork));
  EXPECT_EQ(1, handlers_run);
}

INSTANTIATE_TEST_SUITE_P(All, LaterFork, testing::Values(&_Fork, &ForkWithoutHandlers));

// Negative control: after a bare clone(2) the C library has the parent's thread id.
TEST(LaterForkControl, ABareCloneKeepsTheParentsThreadId) {
  EXPECT_EQ(3, ForkInThread([] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0)); }));
}

using Waiter = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

timespec In(clockid_t clock, int milliseconds) {
  timespec time{};
  clock_gettime(clock, &time);
  const int64_t nanoseconds = time.tv_nsec + int64_t{milliseconds} * 1'000'000;
  const int64_t seconds = nanoseconds / 1'000'000'000 - (nanoseconds % 1'000'000'000 < 0 ? 1 : 0);
  return {.tv_sec = time.tv_sec + seconds, .tv_nsec = nanoseconds - seconds * 1'000'000'000};
}

bool IsPast(clockid_t clock, const timespec& deadline) {
  const timespec now = In(clock, 0);
  return now.tv_sec > deadline.tv_sec ||
         (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

class LaterCondWait : public testing::TestWithParam<Waiter> {
 protected:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

// The two clocks are years apart, so that a clock that is ignored would end the wait at once, or
// never.
TEST_P(LaterCondWait, EndsAtTheDeadlineByItsClock) {
  for (const clockid_t clock : {CLOCK_MONOTONIC, CLOCK_REALTIME}) {
    for (const int milliseconds : {-2000, 0, 50, 1200}) {
      const timespec deadline = In(clock, milliseconds);
      const timespec latest = In(CLOCK_MONOTONIC, 30'000);
      pthread_mutex_lock(&mutex_);
      int result = 0;
      while (result == 0) result = GetParam()(&condition_, &mutex_, clock, &deadline);
      EXPECT_EQ(ETIMEDOUT, result);
      EXPECT_EQ(EBUSY, pthread_mutex_trylock(&mutex_)) << "it isn't locked again";
      pthread_mutex_unlock(&mutex_);
      EXPECT_TRUE(IsPast(clock, deadline)) << milliseconds;
      EXPECT_FALSE(IsPast(CLOCK_MONOTONIC, latest));
    }
  }
}

TEST_P(LaterCondWait, IsWokenBeforeAFarDeadline) {
  for (const clockid_t clock : {CLOCK_MONOTONIC, CLOCK_REALTIME}) {
    const timespec deadline{.tv_sec = INT64_MAX / 2, .tv_nsec = 0};
    bool is_due = false;
    pthread_mutex_lock(&mutex_);
    std::thread waker([&] {
      pthread_mutex_lock(&mutex_);  // free once the other one waits
      is_due = true;
      pthread_cond_signal(&condition_);
      pthread_mutex_unlock(&mutex_);
    });
    while (!is_due) ASSERT_EQ(0, GetParam()(&condition_, &mutex_, clock, &deadline));
    pthread_mutex_unlock(&mutex_);
    waker.join();
  }
}

TEST_P(LaterCondWait, RefusesOddClocksAndTimes) {
  pthread_mutex_lock(&mutex_);
  const timespec soon = In(CLOCK_MONOTONIC, 1);
  EXPECT_EQ(EINVAL, GetParam()(&condition_, &mutex_, CLOCK_PROCESS_CPUTIME_ID, &soon));
  EXPECT_EQ(EINVAL, GetParam()(&condition_, &mutex_, 12345, &soon));
  for (const clockid_t clock : {CLOCK_MONOTONIC, CLOCK_REALTIME}) {
    for (const int64_t nanoseconds : {int64_t{-1}, int64_t{1'000'000'000}}) {
      const timespec odd{.tv_sec = soon.tv_sec, .tv_nsec = nanoseconds};
      EXPECT_EQ(EINVAL, GetParam()(&condition_, &mutex_, clock, &odd));
    }
  }
  pthread_mutex_unlock(&mutex_);
}

INSTANTIATE_TEST_SUITE_P(All, LaterCondWait,
                         testing::Values(&pthread_cond_clockwait, &CondClockWait));

// After somebody has set the time of day, a wait is over after a second, though it isn't due.
TEST(LaterCondWaitBound, LooksAtTheClockOnceASecond) {
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  std::mutex mutex;
  mutex.lock();
  const timespec deadline = In(CLOCK_MONOTONIC, 3'600'000);
  EXPECT_EQ(0, CondClockWait(&condition, mutex.native_handle(), CLOCK_MONOTONIC, &deadline));
  EXPECT_FALSE(IsPast(CLOCK_MONOTONIC, deadline));
  mutex.unlock();
}

TEST(LaterFindObject, FindsWhatGlibcFinds) {
  const auto at = [](auto* function) { return reinterpret_cast<char*>(function); };
  int on_stack = 0;
  char* const in_libc = at(&qsort);
  char* const vdso = reinterpret_cast<char*>(getauxval(AT_SYSINFO_EHDR));  // NOLINT
  void* const library = dlopen("libz.so.1", RTLD_NOW);  // one that wasn't loaded yet
  ASSERT_NE(nullptr, library);
  void* const in_library = dlsym(library, "zlibVersion");
  ASSERT_NE(nullptr, in_library);
  int found = 0;
  for (char* const address :
       {at(&In), in_libc, in_libc + 1, vdso, vdso + 100, static_cast<char*>(in_library),
        static_cast<char*>(nullptr), reinterpret_cast<char*>(&on_stack), at(&std::terminate)}) {
    dl_find_object theirs{};
    dl_find_object ours{};
    const int result = _dl_find_object(address, &theirs);
    ASSERT_EQ(result, FindObject(address, &ours)) << static_cast<void*>(address);
    if (result != 0) continue;
    ++found;
    EXPECT_EQ(theirs.dlfo_eh_frame, ours.dlfo_eh_frame);
    EXPECT_EQ(theirs.dlfo_map_start, ours.dlfo_map_start);
    EXPECT_EQ(theirs.dlfo_map_end, ours.dlfo_map_end);
    EXPECT_EQ(theirs.dlfo_flags, ours.dlfo_flags);
  }
  EXPECT_GE(found, 5);
  dlclose(library);
}

}  // namespace
}  // namespace ddprun::glibc
