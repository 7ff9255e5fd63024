#include "tests/process/process_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/null_terminated.h"
#include "launcher/os/processes.h"
#include "tests/support/trees.h"

namespace ddprun::testing {
namespace {

using launcher::KeeperClient;

bool WaitReadable(int fd, Instant until) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  const int64_t ms = absl::ToInt64Milliseconds(until - MonotonicNow());
  return poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, ms))) > 0;
}

}  // namespace

std::string HelperPath(const std::string& name) { return InBuildTree("tests/" + name); }

std::vector<std::string> Misbehave(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {HelperPath("misbehave")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

PipeReader::Got PipeReader::ReadMore(Instant until) {
  if (!WaitReadable(fd_.get(), until)) return Got::kNothing;
  char chunk[4096];
  const ssize_t n = read(fd_.get(), chunk, sizeof(chunk));
  if (n <= 0) return Got::kEnd;
  buffer_.append(chunk, static_cast<size_t>(n));
  return Got::kBytes;
}

std::optional<std::string> PipeReader::Line(absl::Duration limit) {
  const Instant until = MonotonicNow() + limit;
  size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    if (ReadMore(until) != Got::kBytes) return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

pid_t PipeReader::ReadyPid() {
  const std::string line = Line().value_or("");
  absl::string_view text = line;
  pid_t pid = 0;
  EXPECT_TRUE(absl::ConsumePrefix(&text, "ready ") && absl::SimpleAtoi(text, &pid)) << line;
  return pid;
}

bool PipeReader::EndsWithin(absl::Duration limit) {
  const Instant until = MonotonicNow() + limit;
  for (;;) {
    buffer_.clear();
    const Got got = ReadMore(until);
    if (got != Got::kBytes) return got == Got::kEnd;
  }
}

std::string PipeReader::Rest() {
  const Instant until = MonotonicNow() + kPatience;
  while (ReadMore(until) == Got::kBytes) {
  }
  return std::exchange(buffer_, {});
}

char ProcessState(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '-' : stat[name_end + 2];
}

bool DiesWithin(pid_t pid, absl::Duration limit) {
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return !pidfd.valid() || WaitReadable(pidfd.get(), MonotonicNow() + limit);
}

std::vector<pid_t> ReapAllChildren(absl::Duration limit) {
  std::vector<pid_t> alive;
  const Instant until = MonotonicNow() + limit;
  for (std::vector<pid_t> children = launcher::DirectChildren(); !children.empty();
       children = launcher::DirectChildren()) {
    alive.clear();
    for (const pid_t child : children) {
      if (!DiesWithin(child, std::max(absl::ZeroDuration(), until - MonotonicNow()))) {
        alive.push_back(child);
      } else {
        waitpid(child, nullptr, 0);
      }
    }
    if (alive.size() == children.size()) break;
  }
  return alive;
}

Program StartProgram(const std::vector<std::string>& argv, int extra) {
  auto in = MakePipe();
  auto out = MakePipe();
  EXPECT_TRUE(in.ok() && out.ok());
  const std::vector<char*> pointers = NullTerminated(argv);
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    dup2(in->first.get(), STDIN_FILENO);
    dup2(out->second.get(), STDOUT_FILENO);
    if (extra >= 0 && extra != 3) dup2(extra, 3);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  return {.pid = pid, .in = std::move(in->second), .out = PipeReader(std::move(out->first))};
}

KeeperUnderTest::KeeperUnderTest(absl::Duration isolation_timeout, const std::string& cgroup,
                                 int held_fd, bool kills_leftovers) {
  auto keeper = launcher::ForkKeeper({.isolation_timeout = isolation_timeout,
                                      .cgroup = cgroup,
                                      .kills_leftovers = kills_leftovers,
                                      .held_fd = held_fd});
  EXPECT_TRUE(keeper.ok()) << keeper.status();
  keeper_pid = keeper->pid;
  loop = *EventLoop::Create();
  KeeperClient::Callbacks callbacks;
  callbacks.on_started = [this](uint64_t generation, uint32_t local_rank, pid_t pid,
                                bool was_parked) {
    parked[{generation, local_rank}] = was_parked;
    started[{generation, local_rank}] = pid;
    started_at[{generation, local_rank}] = MonotonicNow();
    Changed();
  };
  callbacks.on_start_failed = [this](uint64_t generation, uint32_t rank, absl::Status error) {
    start_failed[{generation, rank}] = std::move(error);
    Changed();
  };
  callbacks.on_exited = [this](uint64_t generation, launcher::WorkerEnd end, uint32_t swept) {
    exited[{generation, end.local_rank}] = {std::move(end), swept};
    Changed();
  };
  callbacks.on_stopped = [this](uint64_t generation, uint32_t rank, pid_t /*pid*/, int signal) {
    stopped[{generation, rank}] = signal;
    Changed();
  };
  callbacks.on_empty = [this](uint64_t generation, uint32_t swept) {
    empty[generation] = swept;
    Changed();
  };
  callbacks.on_left = [this](const std::vector<launcher::LeftProcess>& named, uint32_t count) {
    EXPECT_EQ(named.size(), count);
    left = named;
  };
  callbacks.on_leftovers_gone = [this] {
    leftovers_gone = true;
    Changed();
  };
  callbacks.on_leftover_killed = [this](const launcher::LeftProcess& process,
                                        absl::Duration /*after*/, const std::string& why) {
    leftovers_killed[process.pid] = why;
    Changed();
  };
  callbacks.on_parked_said = [this](const std::string& text) {
    said.push_back(text);
    Changed();
  };
  callbacks.on_parked_ended = [this](const std::string& how) {
    ended.push_back(how);
    Changed();
  };
  callbacks.on_keeper_lost = [this](absl::Status why) {
    keeper_lost = std::move(why);
    Changed();
  };
  callbacks.is_own_child = [this](pid_t pid) { return is_own_child && is_own_child(pid); };
  client = KeeperClient::Create(loop.get(), *std::move(keeper), std::move(callbacks));
}

PipeReader& KeeperUnderTest::Spawn(uint64_t generation, uint32_t local_rank,
                                   std::vector<std::string> argv) {
  auto pipe = MakePipe();
  EXPECT_TRUE(pipe.ok());
  const absl::Status sent = Spawn({.generation = generation,
                                   .local_rank = local_rank,
                                   .argv = std::move(argv),
                                   .stdout_fd = std::move(pipe->second)});
  EXPECT_TRUE(sent.ok()) << sent;
  return outputs_.emplace_back(std::move(pipe->first));
}

absl::Status KeeperUnderTest::Spawn(launcher::SpawnRequest request) {
  return client->Spawn(std::move(request));
}

bool KeeperUnderTest::RunUntil(const std::function<bool()>& done) {
  if (done()) return true;
  bool late = false;
  Timer limit(loop.get(), [&] {
    late = true;
    loop->Stop();
  });
  limit.Arm(loop->Now() + kPatience);
  done_ = done;
  loop->Run();
  done_ = nullptr;
  return !late;
}

void KeeperUnderTest::Changed() {
  if (done_ && done_()) loop->Stop();
}

pid_t KeeperUnderTest::RunUntilStarted(uint64_t generation, uint32_t local_rank) {
  const Key key{generation, local_rank};
  EXPECT_TRUE(RunUntil([&] { return started.contains(key) || start_failed.contains(key); }));
  return started[key];
}

WorkerExit KeeperUnderTest::RunUntilExited(uint64_t generation, uint32_t local_rank) {
  const Key key{generation, local_rank};
  EXPECT_TRUE(RunUntil([&] { return exited.contains(key); }));
  return exited[key];
}

std::optional<uint32_t> KeeperUnderTest::Sweep(uint64_t generation,
                                               const std::vector<uint32_t>& spared) {
  client->Sweep(generation, {.spared = spared, .leftovers_time = leftovers_time});
  if (!RunUntil([&] { return empty.contains(generation); })) return std::nullopt;
  return empty[generation];
}

}  // namespace ddprun::testing
