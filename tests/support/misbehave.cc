// A worker that misbehaves in one way, chosen by its first argument. The tests of processes run it.
//
// Modes that live on print "ready <pid>" to stdout once they are in position, and hold stdout open:
// at its end of file all of them are gone.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void LiveOn() {
  for (;;) pause();
}

// One write(2), so that lines of several processes don't mix.
void Say(const std::string& text) {
  const std::string line = text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(3);
}

void SayReady() { Say("ready " + std::to_string(getpid())); }

[[noreturn]] void ReadyAndLiveOn() {
  SayReady();
  LiveOn();
}

int Number(char** args, int fallback) {
  return args[0] == nullptr ? fallback : static_cast<int>(strtol(args[0], nullptr, 10));
}

// exit N
int Exit(char** args) { return Number(args, 0); }

// signal N: dies by it.
int Signal(char** args) {
  const int number = Number(args, SIGKILL);
  signal(number, SIG_DFL);
  raise(number);
  return 99;
}

int Live(char** /*args*/) { ReadyAndLiveOn(); }

void SayTerm(int /*number*/) {
  if (write(STDOUT_FILENO, "TERM\n", 5) < 0) _exit(3);
}

// Answers TERM with a line and goes on; INT, HUP and QUIT are ignored.
int IgnoreTerm(char** /*args*/) {
  signal(SIGTERM, SayTerm);
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  ReadyAndLiveOn();
}

// Leaves a grandchild in a session of its own. Returns in the caller when that one is in position.
void LeaveDaemon(bool clear_environment) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) _exit(3);
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    if (clear_environment) {
      // Only exec(2) changes what /proc/<pid>/environ shows.
      char* const args[] = {const_cast<char*>("misbehave"), const_cast<char*>("live"), nullptr};
      char* const none[] = {nullptr};
      execve("/proc/self/exe", args, none);
      _exit(3);
    }
    SayReady();
    close(report[0]);
    close(report[1]);
    LiveOn();
  }
  close(report[1]);
  char byte = 0;
  if (read(report[0], &byte, 1) != 0) _exit(3);  // its end of file: exec or ready
  close(report[0]);
  waitpid(between, nullptr, 0);  // only then it is nobody's child
}

// daemon [N]: exits with N and leaves a daemon.
int Daemon(char** args) {
  LeaveDaemon(false);
  return Number(args, 0);
}

// The same, and the daemon's environment is empty.
int NamelessDaemon(char** args) {
  LeaveDaemon(true);
  return Number(args, 0);
}

// Lives on beside its daemon.
int DaemonParent(char** /*args*/) {
  LeaveDaemon(false);
  ReadyAndLiveOn();
}

// chain DEPTH: children below each other, each in a session of its own; all live on.
int Chain(char** args) {
  for (int depth = Number(args, 3); depth > 0; --depth) {
    if (fork() != 0) break;
    setsid();
  }
  ReadyAndLiveOn();
}

void ForkSurvivor() {
  if (fork() == 0) {
    setsid();
    LiveOn();
  }
}

// When it ends, by exit or by TERM, it leaves a child in another session.
int ForkOnExit(char** args) {
  atexit(ForkSurvivor);
  signal(SIGTERM, [](int) { exit(0); });
  if (args[0] != nullptr) return Number(args, 0);
  ReadyAndLiveOn();
}

// fork-storm N: a process that forks itself into a new session and exits, N times; the last lives
// on.
int ForkStorm(char** args) {
  SayReady();
  for (int left = Number(args, 1000); left > 0; --left) {
    const pid_t child = fork();
    if (child < 0) _exit(4);
    if (child > 0) _exit(0);
    setsid();
  }
  LiveOn();
}

// fork-tree DEPTH: doubles itself DEPTH times; all live on and ignore TERM.
int ForkTree(char** args) {
  signal(SIGTERM, SIG_IGN);
  const pid_t first = getpid();
  for (int depth = Number(args, 4); depth > 0; --depth) {
    if (fork() < 0) _exit(4);
  }
  if (getpid() == first) SayReady();
  LiveOn();
}

// stop: stops itself; after a CONT it exits with 0.
int Stop(char** /*args*/) {
  SayReady();
  raise(SIGSTOP);
  return 0;
}

// flood MIB: lines of pseudo-random letters to stdout, then "<bytes> <FNV-1a of them>" to stderr.
int Flood(char** args) {
  const uint64_t bytes_max = static_cast<uint64_t>(Number(args, 1)) << 20;
  uint64_t hash = 14695981039346656037U;
  uint64_t state = 1;
  uint64_t bytes = 0;
  std::string block;
  while (bytes < bytes_max) {
    block.clear();
    while (block.size() < 32 << 10) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      block.append(1 + (state >> 33) % 200, static_cast<char>('a' + (state >> 59) % 26));
      block.push_back('\n');
    }
    for (const char letter : block) {
      hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
    }
    bytes += block.size();
    if (fwrite(block.data(), 1, block.size(), stdout) != block.size()) return 3;
  }
  fflush(stdout);
  fprintf(stderr, "%llu %llu\n", static_cast<unsigned long long>(bytes),
          static_cast<unsigned long long>(hash));
  return 0;
}

// partial-lines: pieces of lines, progress frames and an end without a newline.
int PartialLines(char** /*args*/) {
  for (const char* piece : {"one ", "line\n", "10%\r", "20%\r", "done\n", "no newline"}) {
    if (write(STDOUT_FILENO, piece, strlen(piece)) < 0) return 3;
  }
  return 0;
}

// close-stdout: closes it early, lives on. "ready" goes to stderr.
int CloseStdout(char** /*args*/) {
  close(STDOUT_FILENO);
  if (write(STDERR_FILENO, "ready\n", 6) < 0) return 3;
  LiveOn();
}

// hold-pipe: exits at once; a child in its session keeps stdout open.
int HoldPipe(char** /*args*/) {
  Say("last words");
  if (fork() == 0) LiveOn();
  return 0;
}

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string StatusLine(const std::string& status, const std::string& name) {
  const size_t begin = status.find("\n" + name + ":\t") + name.size() + 3;
  return status.substr(begin, status.find('\n', begin) - begin);
}

// report: what a worker was given.
int Report(char** /*args*/) {
  const std::string status = ReadAll("/proc/self/status");
  int fds = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++fds;
  closedir(directory);
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  Say("leads_session=" + std::to_string(getsid(0) == getpid() && getpgrp() == getpid()));
  Say("blocked=" + StatusLine(status, "SigBlk"));
  Say("ignored=" + StatusLine(status, "SigIgn"));
  Say("descriptors=" + std::to_string(fds - 3));  // ".", ".." and the directory itself
  Say("death_signal=" + std::to_string(death_signal));
  return 0;
}

// count ARG…: how many variables begin with BIG_, the length of the arguments, and some variables.
int Count(char** args) {
  int variables = 0;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (strncmp(*variable, "BIG_", 4) == 0) ++variables;
  }
  size_t length = 0;
  for (; *args != nullptr; ++args) length += strlen(*args);
  const char* changed = getenv("CHANGED");
  const char* removed = getenv("REMOVED");
  Say("variables=" + std::to_string(variables));
  Say("argument_bytes=" + std::to_string(length));
  Say(std::string("changed=") + (changed == nullptr ? "<unset>" : changed));
  Say(std::string("removed=") + (removed == nullptr ? "<unset>" : removed));
  return 0;
}

// cpus: the CPUs that it, a thread of it and a child of it may run on, one line each.
int Cpus(char** /*args*/) {
  const auto say = [](const char* who) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) _exit(3);
    std::string text = who;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) text += " " + std::to_string(cpu);
    }
    Say(text);
  };
  say("worker");
  std::thread(say, "thread").join();
  const pid_t child = fork();
  if (child == 0) {
    say("child");
    _exit(0);
  }
  return waitpid(child, nullptr, 0) == child ? 0 : 3;
}

// last-breath: prints CLOCK_MONOTONIC in nanoseconds and is dead an instant later.
int LastBreath(char** /*args*/) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  Say(std::to_string(static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec));
  _exit(0);
}

// Descriptors that came with a packet of the parked process' channel; none: it has ended.
std::vector<int> ReceiveRequest(int channel) {
  char bytes[1 << 16];
  alignas(cmsghdr) char space[CMSG_SPACE(8 * sizeof(int))];
  iovec io{.iov_base = bytes, .iov_len = sizeof(bytes)};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  const ssize_t n = recvmsg(channel, &header, MSG_CMSG_CLOEXEC);
  const cmsghdr* control = n > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
  if (control == nullptr) return {};
  std::vector<int> fds((control->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(fds.data(), CMSG_DATA(control), fds.size() * sizeof(int));
  if (bytes[0] == 'f') {  // the text is in a file
    close(fds.front());
    fds.erase(fds.begin());
  }
  return fds;
}

void Answer(int socket, const std::string& text) {
  const std::string packet = "p" + text;
  if (send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) _exit(3);
}

// Becomes the keeper's child, and then a worker that lives on.
void ForkWorker(const std::vector<int>& fds, pid_t keeper) {
  int orphaned[2];
  if (pipe(orphaned) != 0) _exit(3);
  const pid_t middle = fork();
  if (middle == 0) {
    if (fork() != 0) _exit(0);
    close(orphaned[1]);
    char byte = 0;
    while (read(orphaned[0], &byte, 1) > 0) {
    }
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) _exit(4);
    if (fds.size() > 1) dup2(fds[1], STDOUT_FILENO);
    Answer(fds[0], "pid " + std::to_string(getpid()));
    Answer(fds[0], "set");
    char go[8];
    if (recv(fds[0], go, sizeof(go), 0) <= 0) _exit(5);
    ReadyAndLiveOn();
  }
  waitpid(middle, nullptr, 0);
  close(orphaned[0]);
  close(orphaned[1]);
}

// parked HOW: waits to become workers (launcher/keeper/parked_process.h); silent: never answers;
// stuck, dies: once it was asked; liar: names another's process; forks: as it should.
int Parked(char** args) {
  const std::string how = args[0] == nullptr ? "" : args[0];
  const char* number = getenv("DDPRUN_WARM");
  const int channel = number == nullptr ? -1 : static_cast<int>(strtol(number, nullptr, 10));
  const pid_t keeper = getppid();
  Answer(channel, "here");
  if (how == "silent") LiveOn();
  for (;;) {
    const std::vector<int> fds = ReceiveRequest(channel);
    if (fds.empty()) return 0;
    Answer(fds[0], "taken");
    if (how == "stuck") LiveOn();
    if (how == "dies") return 3;
    if (how == "liar") Answer(fds[0], "pid 1");
    if (how == "forks") ForkWorker(fds, keeper);
    for (const int fd : fds) close(fd);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(char**)> modes = {
      {"chain", Chain},
      {"close-stdout", CloseStdout},
      {"count", Count},
      {"cpus", Cpus},
      {"daemon", Daemon},
      {"daemon-parent", DaemonParent},
      {"exit", Exit},
      {"flood", Flood},
      {"fork-on-exit", ForkOnExit},
      {"fork-storm", ForkStorm},
      {"fork-tree", ForkTree},
      {"hold-pipe", HoldPipe},
      {"ignore-term", IgnoreTerm},
      {"last-breath", LastBreath},
      {"live", Live},
      {"nameless-daemon", NamelessDaemon},
      {"parked", Parked},
      {"partial-lines", PartialLines},
      {"report", Report},
      {"signal", Signal},
      {"stop", Stop},
  };
  const auto mode = argc < 2 ? modes.end() : modes.find(argv[1]);
  if (mode == modes.end()) {
    fprintf(stderr, "usage: misbehave MODE [ARGUMENT]; modes:");
    for (const auto& [name, run] : modes) fprintf(stderr, " %s", name.c_str());
    fprintf(stderr, "\n");
    return 2;
  }
  return mode->second(argv + 2);
}
