// What blocked processes are said to wait for, and which of them provably can't go on.
#include "launcher/os/wait_probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using launcher::LookAtWaits;
using launcher::ProcessWait;
using launcher::SameSealed;
using launcher::ThreadWait;

struct WaitCase {
  const char* name;
  const char* code;  // of Python; Ready() says which process is looked at
  const char* main;  // part of the sentence about the main thread
  const char* what;  // part of what is said about one of the threads
  bool sealed;
};

void PrintTo(const WaitCase& wait_case, std::ostream* out) { *out << wait_case.name; }

constexpr char kPrelude[] = R"(
import ctypes, fcntl, mmap, multiprocessing, os, queue, select
import signal, socket, subprocess, sys, threading, time
def Ready(pid=0): os.write(1, b"ready %d\n" % (pid or os.getpid()))
def Thread(target, *args): threading.Thread(target=target, args=args, daemon=True).start()
libc = ctypes.CDLL(None)
lock = threading.Lock()
other = threading.Lock()
def Cross():
    both = threading.Barrier(3)
    def Take(first, second):
        first.acquire(); both.wait(); second.acquire()
    Thread(Take, lock, other); Thread(Take, other, lock)
    both.wait()
def Twice():
    lock.acquire(); Ready(); lock.acquire()
)";

constexpr WaitCase kCases[] = {
    // Sealed: nothing but a thread of the same process could end the wait, and none is left.
    {"LockTwice", "Twice()", "waits for a lock", "a lock, without a time limit", true},
    {"CrossedLocks", "Cross(); Ready(); queue.Queue().get()", "waits for a lock",
     "a lock, without a time limit", true},
    {"EventThatNobodySets", "Ready(); threading.Event().wait()", "waits for a lock", "a lock",
     true},
    {"JoinOfAThreadThatIsStuck",
     "lock.acquire(); t = threading.Thread(target=lock.acquire); t.start(); Ready(); t.join()",
     "waits for a lock", "a lock", true},
    {"MutexTwice",
     "m = ctypes.create_string_buffer(64); libc.pthread_mutex_lock(m); Ready(); "
     "libc.pthread_mutex_lock(m)",
     "waits for a lock", "a lock, without a time limit", true},
    {"ChildThatIsSealedToo",
     "lock.acquire(); os.fork(); Ready() if os.getppid() == PARENT else 0; "
     "lock.acquire()",
     "waits for a lock", "a lock", true},
    {"ZombieChild", "os.fork() or os._exit(0); Twice()", "waits for a lock", "a lock", true},
    // Locks that end by themselves, or by others.
    {"LockWithATimeLimit", "lock.acquire(); Ready(); lock.acquire(timeout=600)",
     "waits for a lock, with a time limit", "a lock, with a time limit", false},
    {"CrossedLocksAndASleeper", "Cross(); Thread(time.sleep, 600); Ready(); queue.Queue().get()",
     "waits for a lock", "a sleep", false},
    {"CrossedLocksAndAReader", "Cross(); Thread(os.read, 0, 1); Ready(); queue.Queue().get()",
     "waits for a lock", "read of pipe", false},
    {"CrossedLocksAndAPoller",
     "Cross(); Thread(select.select, [0], [], [], 600); Ready(); queue.Queue().get()",
     "waits for a lock", "select of pipe, with a time limit", false},
    {"CrossedLocksAndAThreadThatComputes",
     "exec('def Count():\\n while True: pass'); Cross(); Thread(Count); Ready(); "
     "queue.Queue().get()",
     "waits for a lock", "computes", false},
    {"LockAndAnEpollLoop",
     "e = select.epoll(); e.register(0); s = select.epoll(); a = socket.socketpair(); "
     "s.register(a[0], select.EPOLLIN); Thread(s.poll); Twice()",
     "waits for a lock", "epoll of unix socket", false},
    {"LockAndALoopThatLooksLikeGloo",
     "s = select.epoll(); a = socket.socketpair(); s.register(a[0], select.EPOLLIN)\n"
     "def Loop():\n while True: s.poll(0.01, 64)\n"
     "Thread(Loop); Twice()",
     "waits for a lock", "epoll of unix socket, for at most 10 ms", false},
    {"LockOfSeveralProcesses", "l = multiprocessing.Lock(); l.acquire(); Ready(); l.acquire()",
     "waits for a lock that may be shared", "may be shared between processes", false},
    {"SemaphoreThatAChildReleases",
     "l = multiprocessing.Semaphore(0)\nif os.fork() == 0: time.sleep(600); l.release()\n"
     "Ready(); l.acquire()",
     "waits for a lock that may be shared", "may be shared between processes", false},
    {"PrivateFutexInSharedMemory",
     "m = mmap.mmap(-1, 4096); a = ctypes.addressof(ctypes.c_int.from_buffer(m)); Ready(); "
     "libc.syscall(SYS_FUTEX, ctypes.c_void_p(a), 128, 0, None)",
     "waits for a lock", "a lock", false},
    {"LockAndAChildThatSleeps",
     "p = subprocess.Popen(['sleep', '600']); signal.signal(signal.SIGCHLD, lambda *_: "
     "lock.release()); Twice()",
     "waits for a lock", "a lock", false},
    {"QueueOfAnotherProcess", "q = multiprocessing.Queue(); Ready(); q.get()", "waits for pipe",
     "read of pipe", false},
    // Handlers and timers.
    {"LockAndAlarm",
     "signal.signal(signal.SIGALRM, lambda *_: lock.release()); signal.alarm(600); Twice()",
     "waits for a lock", "a lock", false},
    {"LockAndItimer",
     "signal.signal(signal.SIGPROF, lambda *_: lock.release()); "
     "signal.setitimer(signal.ITIMER_PROF, 600); Twice()",
     "waits for a lock", "a lock", false},
    {"LockAndAHandlerForOthers",
     "signal.signal(signal.SIGUSR1, lambda *_: lock.release()); Twice()", "waits for a lock",
     "a lock", false},
    {"LockAndAHandlerOfTerm", "signal.signal(signal.SIGTERM, lambda *_: lock.release()); Twice()",
     "waits for a lock", "a lock", false},
    {"LockAndAPosixTimer",
     "t = ctypes.c_void_p(); libc.timer_create(1, None, ctypes.byref(t)) == 0 or os._exit(1); "
     "Twice()",
     "waits for a lock", "a lock", false},
    {"Pause", "signal.signal(signal.SIGALRM, lambda *_: 0); Ready(); signal.pause()",
     "waits for a signal", "a signal", false},
    {"Sigwait", "Ready(); signal.sigwait({signal.SIGUSR1})", "waits for a signal", "a signal",
     false},
    // Waits for children.
    {"Child", "Ready(); subprocess.run(['sleep', '600'])", "waits for its child `sleep 600` (pid ",
     " (sleep 600)", false},
    {"AnyChild", "p = subprocess.Popen(['sleep', '600']); Ready(); os.wait()",
     "waits for its child `sleep 600` (pid ", " (sleep 600)", false},
    {"ChildByWaitid",
     "p = subprocess.Popen(['sleep', '600']); Ready(); os.waitid(os.P_PID, p.pid, os.WEXITED)",
     "waits for its child `sleep 600` (pid ", " (sleep 600)", false},
    {"ChildThatIsStopped",
     "p = subprocess.Popen(['sleep', '600']); os.kill(p.pid, signal.SIGSTOP); Ready(); p.wait()",
     "waits for its child `sleep 600` (pid ", " (sleep 600)", false},
    {"OneOfSeveralChildren",
     "[subprocess.Popen(['sleep', str(s)]) for s in (600, 700)]; Ready(); os.wait()",
     "waits for one of its children `sleep 600` (pid ", " (sleep 700)", false},
    {"OutputOfAChild", "Ready(); subprocess.check_output(['sleep', '600'])",
     "waits for a pipe of its child ", "read of a pipe of its child ", false},
    {"ErrorsOfAChildToo", "Ready(); subprocess.run(['sleep', '600'], capture_output=True)",
     "waits for a pipe of its child ", "poll of a pipe of its child ", false},
    {"CommunicateInThreads",
     "p = subprocess.Popen(['sleep', '600'], stdout=-1, stderr=-1)\n"
     "ts = [threading.Thread(target=f.read) for f in (p.stdout, p.stderr)]\n"
     "[t.start() for t in ts]; Ready(); [t.join() for t in ts]",
     "waits for a lock", "read of a pipe of its child ", false},
    // Sockets, files, terminals.
    {"Http", "import urllib.request; Ready(); urllib.request.urlopen('http://127.0.0.1:PORT/')",
     "waits for tcp 127.0.0.1:PORT (recvfrom)", "recvfrom of tcp 127.0.0.1:PORT", false},
    {"HttpWithATimeLimit",
     "import urllib.request; Ready(); urllib.request.urlopen('http://127.0.0.1:PORT/', "
     "timeout=400)",
     "waits for tcp 127.0.0.1:PORT (poll, for at most 400000 ms)",
     "poll of tcp 127.0.0.1:PORT, for at most 400000 ms", false},
    {"Accept", "s = socket.create_server(('127.0.0.1', 0)); Ready(); s.accept()",
     "waits for tcp 127.0.0.1:", "accept of tcp 127.0.0.1:", false},
    {"NameServer",
     "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53)); "
     "s.settimeout(500); Ready(); s.recv(1)",
     "waits for udp 127.0.0.1:53 (poll, for at most 500000 ms)", "poll of udp 127.0.0.1:53", false},
    {"UnixSocket", "s = socket.socketpair(); Ready(); s[0].recv(1)",
     "waits for unix socket (recvfrom)", "recvfrom of unix socket", false},
    {"Flock", "f = open('FOLDER/lock'); Ready(); fcntl.flock(f, fcntl.LOCK_EX)",
     "waits for the file lock on FOLDER/lock, held by pid SELF (", "flock of FOLDER/lock", false},
    {"RecordLock", "f = open('FOLDER/lock', 'r+'); Ready(); fcntl.lockf(f, fcntl.LOCK_EX)",
     "waits for the file lock on FOLDER/lock, held by pid SELF (", "a lock on FOLDER/lock", false},
    {"Fifo", "Ready(); open('FOLDER/fifo')", "waits to open FOLDER/fifo", "open of FOLDER/fifo",
     false},
    {"StandardInput", "Ready(); sys.stdin.readline()", "waits for pipe (read)", "read of pipe",
     false},
    {"Terminal",
     "import pty; pid, fd = pty.fork(); \nif pid == 0: input(); os._exit(0)\n"
     "Ready(pid); time.sleep(600)",
     "waits for input at its terminal", "terminal input", false},
    {"Select", "Ready(); select.select([0], [], [])", "waits for pipe (select)", "select of pipe",
     false},
    {"Poll", "p = select.poll(); p.register(0, select.POLLIN); Ready(); p.poll(5000000)",
     "waits for pipe (poll, for at most 5000000 ms)", "poll of pipe, for at most", false},
    {"Epoll", "e = select.epoll(); e.register(0, select.EPOLLIN); Ready(); e.poll()",
     "waits for pipe (epoll)", "epoll of pipe", false},
    {"FullPipe", "r, w = os.pipe(); Ready(); os.write(w, b'x' * (1 << 22))",
     "waits for pipe (write)", "write of pipe", false},
    // Other states: a sleep, a stop, a computation.
    {"Sleep", "Ready(); time.sleep(600)", "sleeps", "a sleep", false},
    {"Stopped", "Ready(); os.kill(os.getpid(), signal.SIGSTOP)",
     "is stopped by a signal (SIGCONT continues it)", "stopped by a signal", false},
    {"StoppedInALock",
     "lock.acquire(); Ready(); threading.Timer(0, lambda: os.kill(os.getpid(), "
     "signal.SIGSTOP)).start(); lock.acquire()",
     "is stopped by a signal (SIGCONT continues it)", "stopped by a signal", false},
    {"Computes", "Ready()\nwhile True: pass", "computes", "computes", false},
};

class WaitProbeTest : public ::testing::Test {
 protected:
  WaitProbeTest() : folder_(absl::StrCat(::testing::TempDir(), "wait_probe.", getpid())) {
    EXPECT_EQ(mkdir(folder_.c_str(), 0700), 0);
    EXPECT_EQ(mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
    lock_.Reset(open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct flock record {};
    record.l_type = F_WRLCK;
    EXPECT_EQ(flock(lock_.get(), LOCK_EX), 0);
    EXPECT_EQ(fcntl(lock_.get(), F_SETLK, &record), 0);
    // The kernel accepts connections to this socket, and no process answers requests.
    server_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(server_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(server_.get(), 4), 0);
    EXPECT_EQ(getsockname(server_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~WaitProbeTest() override {
    if (program_.pid > 0) {
      kill(-program_.pid, SIGKILL);
      waitpid(program_.pid, nullptr, 0);
    }
    unlink((folder_ + "/fifo").c_str());
    unlink((folder_ + "/lock").c_str());
    rmdir(folder_.c_str());
  }

  std::string Filled(const std::string& text) const {
    return absl::StrReplaceAll(text, {{"FOLDER", folder_},
                                      {"PORT", absl::StrCat(port_)},
                                      {"PARENT", absl::StrCat(getpid())},
                                      {"SELF", absl::StrCat(getpid())},
                                      {"SYS_FUTEX", absl::StrCat(SYS_futex)}});
  }
  // Starts the program; the process that is to be looked at.
  pid_t Start(const std::string& code, const std::string& python = "python3") {
    program_ = StartProgram({"/usr/bin/env", python, "-c", Filled(absl::StrCat(kPrelude, code))});
    return program_.out.ReadyPid();
  }
  // Looks again after a moment, which ends early when the program writes something.
  ProcessWait LookAgain(pid_t pid) {
    program_.out.Line(absl::Milliseconds(10));
    return LookAtWaits(pid, {});
  }

  std::string folder_;
  Fd lock_;
  Fd server_;
  int port_ = 0;
  Program program_;
};

std::string Texts(const ProcessWait& wait) {
  return absl::StrCat(wait.main, wait.sealed ? " (sealed)" : "", ": ",
                      absl::StrJoin(wait.threads, "; ", [](std::string* out, const ThreadWait& t) {
                        absl::StrAppend(out, t.tid, " ", t.comm, ": ", t.what,
                                        t.closed ? " (closed)" : "");
                      }));
}

bool Says(const ProcessWait& wait, const std::string& main, const std::string& what) {
  bool said = false;
  for (const ThreadWait& thread : wait.threads) said |= absl::StrContains(thread.what, what);
  return said && absl::StrContains(wait.main, main);
}

class WaitKindTest : public WaitProbeTest, public ::testing::WithParamInterface<WaitCase> {};

TEST_P(WaitKindTest, SaysWhatAndWhetherItIsSealed) {
  const WaitCase& wanted = GetParam();
  const pid_t pid = Start(wanted.code);
  const Instant until = MonotonicNow() + kPatience;
  ProcessWait before;
  ProcessWait now = LookAtWaits(pid, {});
  const auto is_there = [&] {
    return Says(now, Filled(wanted.main), Filled(wanted.what)) &&
           SameSealed(before, now) == wanted.sealed;
  };
  while (!is_there() && MonotonicNow() < until) {
    before = std::move(now);
    now = LookAgain(pid);
    ASSERT_TRUE(wanted.sealed || !SameSealed(before, now)) << Texts(now);
  }
  EXPECT_TRUE(is_there()) << Texts(now);
  for (int i = 0; i < 5; ++i) {
    before = std::move(now);
    now = LookAgain(pid);
    EXPECT_EQ(SameSealed(before, now), wanted.sealed) << Texts(now);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WaitKindTest, ::testing::ValuesIn(kCases),
                         [](const auto& kind) { return kind.param.name; });

TEST_F(WaitProbeTest, AThreadThatRanBetweenTwoLooksBreaksTheProof) {
  const pid_t pid =
      Start("signal.signal(signal.SIGINT, lambda *_: None); Ready(); threading.Event().wait()");
  ProcessWait first;
  const Instant until = MonotonicNow() + kPatience;
  while (!first.sealed && MonotonicNow() < until) first = LookAgain(pid);
  ASSERT_TRUE(first.sealed) << Texts(first);
  ASSERT_EQ(kill(pid, SIGINT), 0);  // wakes the thread, which waits again
  ProcessWait second = LookAgain(pid);
  while (!second.sealed && MonotonicNow() < until) second = LookAgain(pid);
  EXPECT_TRUE(second.sealed) << Texts(second);
  EXPECT_FALSE(SameSealed(first, second));
  EXPECT_TRUE(SameSealed(second, LookAgain(pid)));
}

TEST_F(WaitProbeTest, IgnoredThreadsDoNotCount) {
  const pid_t pid = Start("Thread(os.read, 0, 1); Twice()");
  ProcessWait now;
  const Instant until = MonotonicNow() + kPatience;
  while (!Says(now, "waits for a lock", "read of pipe") && MonotonicNow() < until) {
    now = LookAgain(pid);
  }
  ASSERT_EQ(now.threads.size(), 2U) << Texts(now);
  EXPECT_FALSE(now.sealed);
  const pid_t reader = now.threads[0].tid == pid ? now.threads[1].tid : now.threads[0].tid;
  EXPECT_TRUE(LookAtWaits(pid, {reader}).sealed);
  EXPECT_FALSE(LookAtWaits(pid, {pid}).sealed);
  EXPECT_FALSE(LookAtWaits(pid, {pid, reader}).sealed) << "no thread is closed";
}

TEST_F(WaitProbeTest, ManyThreadsAreNotJudged) {
  const pid_t pid = Start("[Thread(threading.Event().wait) for _ in range(256)]; Twice()");
  const ProcessWait now = LookAgain(pid);
  EXPECT_EQ(now.threads.size(), launcher::kWaitThreadsMax);
  EXPECT_FALSE(now.sealed);
}

TEST_F(WaitProbeTest, AProcessThatIsGoneIsUnknown) {
  const pid_t pid = Start("Twice()");
  kill(-pid, SIGKILL);
  waitpid(std::exchange(program_.pid, 0), nullptr, 0);
  for (const pid_t gone : {pid, 0, -1}) {
    const ProcessWait wait = LookAtWaits(gone, {});
    EXPECT_EQ(wait.main, "");
    EXPECT_TRUE(wait.threads.empty());
    EXPECT_FALSE(wait.sealed);
  }
}

// The threads of a DistributedDataParallel worker: Gloo's loop and workers, the server of a
// TCPStore, a DataLoader with its children. Rank 0 waits for a lock of its own: sealed. Rank 1
// waits for rank 0, which Gloo does with a time limit.
constexpr char kTwoRanks[] = R"(
import torch, torch.distributed as dist, torch.utils.data
class Ones(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index): return torch.ones(1)
read, write = os.pipe()
rank = 1 if os.fork() else 0
port = int(os.read(read, 20)) if rank else 0
store = dist.TCPStore('127.0.0.1', port, 2, rank == 0, wait_for_workers=False)
if rank == 0: os.write(write, str(store.port).encode())
dist.init_process_group('gloo', store=store, rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
batches = iter(torch.utils.data.DataLoader(Ones(), num_workers=1, prefetch_factor=1))
for _ in range(3):
    next(batches)
    model(torch.ones(1, 300)).sum().backward()
if rank == LOOKED_AT: Ready()
if rank == 0: lock.acquire(); lock.acquire()
dist.all_reduce(torch.ones(1))
)";

class WaitProbeTorchTest : public WaitProbeTest {
 protected:
  // The first two looks in a row that have the same answer are the answer.
  ProcessWait LookAtRank(int rank) {
    const std::string python =
        absl::StrCat(getenv("HOME") ? getenv("HOME") : "", "/.cache/ddprun/py-full/bin/python3");
    if (access(python.c_str(), X_OK) != 0) return {};
    const pid_t pid =
        Start(absl::StrReplaceAll(kTwoRanks, {{"LOOKED_AT", absl::StrCat(rank)}}), python);
    const Instant until = MonotonicNow() + kPatience;
    ProcessWait before;
    ProcessWait now = LookAtWaits(pid, {});
    while (!SameSealed(before, now) && MonotonicNow() < until && (rank == 0 || ++looks_ < 100)) {
      before = std::move(now);
      now = LookAgain(pid);
    }
    now.sealed = SameSealed(before, now);
    return now;
  }

  int looks_ = 0;
};

TEST_F(WaitProbeTorchTest, ThreadsThatTorchKeepsDoNotCount) {
  const ProcessWait wait = LookAtRank(0);
  if (wait.threads.empty()) GTEST_SKIP() << "no PyTorch";
  EXPECT_TRUE(wait.sealed) << Texts(wait);
}

TEST_F(WaitProbeTorchTest, AWorkerThatWaitsForAPeerIsNotSealed) {
  const ProcessWait wait = LookAtRank(1);
  if (wait.threads.empty()) GTEST_SKIP() << "no PyTorch";
  EXPECT_FALSE(wait.sealed) << Texts(wait);
}

}  // namespace
}  // namespace ddprun::testing
