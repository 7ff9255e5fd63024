#include "worker/env/parked_program.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "base/packet.h"
#include "worker/env/start_request.h"

// How a program that was started ahead becomes workers.
//
// Goal: a new worker is in main() some milliseconds after it was asked for, as the keeper's child,
// with nothing of the program initialized before the worker had its environment. A fork of a
// process with LibTorch copies page tables for milliseconds, so it is made before it is asked for:
//
//   keeper
//     └ parked        waits in waitpid() for "between"
//         └ between   waits in read(asked) for the worker's word
//             └ worker   waits in recvmsg(channel) for a request
//
// When a request comes:
//
//   worker    compares the files, answers "taken", writes '!' to `asked`
//   between   exits with 0; the worker becomes the child of the keeper, which is a subreaper
//   parked    reaps between, and closes `orphaned`, which it alone still has open
//   worker    reads the end of `orphaned`; setsid(), "pid N", CPUs, streams, environment, "set"
//   keeper    says "go"; the worker returns from the constructor, and the program begins
//   parked    waits until it is quiet, and forks the next two
//
// Why before main()? Steps stand still for 228 ms instead of 1,103 (median), because loading
// LibTorch takes half a second. In Context::Create the program would have read its arguments,
// options and perhaps RANK. dlopen(3) of LibTorch by a small program leaves the program's own
// symbols unbound. A waiting process per worker costs half a core-second per fault, and a second
// fault finds none.
//
// Why not the obvious ways: fork() alone would make the worker a child of `parked`, so the keeper
// couldn't reap it. CLONE_PARENT would make it the keeper's, but skips the C library's fork
// handlers, which OpenBLAS needs. And `parked` must close `orphaned`, after waitpid(): a process
// closes its descriptors before its children get another parent, so the end of a pipe that
// `between` held could be seen while getppid() is still `between`, and DieWith() would exit.
//
// Each process dies with the one above it (PR_SET_PDEATHSIG) until it is a worker; then with the
// keeper.

// The header of the ELF file (program or library) that this code is linked into, from the linker.
// NOLINTNEXTLINE(bugprone-reserved-identifier): its name is the linker's
extern "C" const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

// Loads more libraries ahead, if the program has the part of the runtime that defines it. It may
// use libraries only, because the program's own objects aren't initialized here.
extern "C" [[gnu::weak]] void ddprun_load_ahead();

namespace ddprun::worker {
namespace {

constexpr char kChannelVariable[] = "DDPRUN_WARM";
constexpr char kOomScore[] = "/proc/self/oom_score_adj";
// About the time from a worker's start to its first step.
constexpr int kQuietMilliseconds = 100;

// ------------------------------------------------------------- what /proc says of us

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t n = pread(fd, piece.data(), piece.size(), static_cast<off_t>(text.size()));
    if (n <= 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
  }
}

std::string ReadFile(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text = ReadAll(fd);
  close(fd);
  return text;
}

// Best effort: errors are ignored.
void WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = write(fd, text.data(), text.size());
  close(fd);
}

// The numbers that a folder of /proc has as names, without the descriptor that reads it.
std::vector<int> Numbers(const char* folder) {
  std::vector<int> numbers;
  DIR* const open_folder = opendir(folder);
  if (open_folder == nullptr) return numbers;
  while (const dirent* entry = readdir(open_folder)) {
    int number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number) && number != dirfd(open_folder)) {
      numbers.push_back(number);
    }
  }
  closedir(open_folder);
  return numbers;
}

// Anonymous and shared memory; mapped pages of files aren't counted, as the kernel can drop them.
// Source: proc(5).
uint64_t KibibytesHeld() {
  uint64_t held = 0;
  const std::string status = ReadFile("/proc/self/status");
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t number = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &number)) continue;
    if (words[0] == "RssAnon:" || words[0] == "RssShmem:") held += number;
  }
  return held;
}

// The age of this process. Source: proc(5), stat, the 22nd word: its start in ticks since the boot.
int64_t MillisecondsOld() {
  const std::string stat = ReadFile("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> words = absl::StrSplit(stat.substr(name_end + 2), ' ');
  int64_t ticks = 0;
  timespec now{};
  if (words.size() < 20 || !absl::SimpleAtoi(words[19], &ticks)) return 0;
  clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t began = ticks * 1000 / sysconf(_SC_CLK_TCK);
  return std::max<int64_t>(0, now.tv_sec * 1000 + now.tv_nsec / 1'000'000 - began);
}

// The program and its libraries, by path. A change means that the file was built anew, so that a
// worker must be executed instead.
using FileVersion = std::tuple<dev_t, ino_t, off_t, time_t, long>;  // NOLINT(google-runtime-int)
using FileVersions = std::map<std::string, FileVersion>;

FileVersion VersionOf(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
}

FileVersions LoadedFiles() {
  FileVersions files;
  const auto add = [](dl_phdr_info* info, size_t /*size*/, void* data) {
    const std::string path = info->dlpi_name;
    if (path.find('/') != std::string::npos) {  // the kernel's own has no path
      static_cast<FileVersions*>(data)->emplace(path, VersionOf(path));
    }
    return 0;
  };
  dl_iterate_phdr(add, &files);
  std::array<char, 4096> program;
  const ssize_t n = readlink("/proc/self/exe", program.data(), program.size());
  if (n > 0) {
    const std::string path(program.data(), static_cast<size_t>(n));
    files.emplace(path, VersionOf(path));
  }
  return files;
}

// ------------------------------------------------------------- the packets of keeper/channel.h

bool Say(int socket, absl::string_view text) {
  const std::string packet = absl::StrCat("p", text);
  return send(socket, packet.data(), packet.size(), MSG_NOSIGNAL) >= 0;
}

struct Message {
  std::string text;
  std::vector<Fd> fds;
};

// nullopt: the other end is closed.
std::optional<Message> Receive(int socket) {
  Message message{.text = std::string(1 << 16, '\0')};
  Packet packet;
  do {
    pollfd next = {.fd = socket, .events = POLLIN, .revents = 0};
    poll(&next, 1, -1);
    packet = ReceivePacket(socket, &message.text);
  } while (packet.size < 0 && errno == EAGAIN);
  if (packet.size <= 0) return std::nullopt;
  message.fds = std::move(packet.fds);
  if (message.text[0] == 'f' && !message.fds.empty()) {  // the text is in a file
    message.text = ReadAll(message.fds.front().get());
    message.fds.erase(message.fds.begin());
  } else {
    message.text = message.text.substr(1, static_cast<size_t>(packet.size) - 1);
  }
  return message;
}

// ------------------------------------------------------------- the process that waits

void CloseAll(const std::vector<int>& fds) {
  for (const int fd : fds) close(fd);
}

// The kernel kills us when that process ends.
void DieWith(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

void BindTo(const std::vector<uint32_t>& cpus) {
  if (cpus.empty()) return;
  const size_t bits = size_t{*std::max_element(cpus.begin(), cpus.end())} + 1;
  std::vector<cpu_set_t> mask((CPU_ALLOC_SIZE(bits) - 1) / sizeof(cpu_set_t) + 1);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, mask.data());
  if (sched_setaffinity(0, bytes, mask.data()) != 0) _exit(1);
}

class ParkedProgram {
 public:
  // `began`: the environment that the kernel gave this process.
  ParkedProgram(int channel, char** began) : channel_(channel), began_(began) {
    fcntl(channel_, F_SETFD, FD_CLOEXEC);
  }

  // Returns in each worker, and never in the process itself.
  void BecomeWorkers() {
    prctl(PR_GET_NAME, name_.data());
    prctl(PR_SET_NAME, "ddprun-warm");  // ps shows the workers and us by one command line
    oom_score_ = ReadFile(kOomScore);
    WriteFile(kOomScore, "1000");  // the first to go when memory is short
    if (const std::string why = WhyNot(); !why.empty()) {
      Say(channel_, absl::StrCat("cannot ", why));
      _exit(0);
    }
    files_ = LoadedFiles();
    ready_ = absl::StrCat("ready ", MillisecondsOld(), " ", KibibytesHeld());
    while (!ForkAhead()) ready_.clear();
  }

 private:
  struct Asked {
    StartRequest request;
    Fd answers;
    std::vector<Fd> streams;  // as many as request.streams has letters
  };

  // Why this process can't be forked: a thread would not exist in a worker, and workers would share
  // the file position behind a descriptor. "" = it can be forked.
  std::string WhyNot() const {
    if (Numbers("/proc/self/task").size() > 1) return "a library of it starts a thread";
    for (const int fd : Numbers("/proc/self/fd")) {
      if (fd <= STDERR_FILENO || fd == channel_) continue;
      std::array<char, 4096> target;
      const ssize_t n =
          readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target.data(), target.size());
      return absl::StrCat(
          "a library of it holds ",
          absl::string_view(target.data(), static_cast<size_t>(std::max<ssize_t>(n, 0))), " open");
    }
    return "";
  }

  // Forks `between`, which forks the next worker (see above). Returns true in the worker, and false
  // in this process when the next one is to be forked.
  bool ForkAhead() {
    int asked[2];
    int orphaned[2];
    if (pipe2(asked, O_CLOEXEC) != 0 || pipe2(orphaned, O_CLOEXEC) != 0) _exit(1);
    const pid_t waiting = getpid();
    const pid_t between = fork();
    if (between < 0) _exit(1);
    if (between > 0) {
      CloseAll({asked[0], asked[1], orphaned[0]});
      int status = 0;
      // Not 0: the keeper is gone, or the files have changed.
      if (waitpid(between, &status, 0) != between || status != 0) _exit(0);
      close(orphaned[1]);
      AwaitQuiet();
      return false;
    }
    close(orphaned[1]);
    DieWith(waiting);
    const pid_t middle = getpid();
    const pid_t worker = fork();
    if (worker != 0) {
      char byte = 0;
      close(asked[1]);
      _exit(worker > 0 && read(asked[0], &byte, 1) == 1 ? 0 : 1);
    }
    close(asked[0]);
    DieWith(middle);
    if (!ready_.empty()) Say(channel_, ready_);
    const Asked wanted = AwaitRequest();
    prctl(PR_SET_PDEATHSIG, 0);
    char byte = '!';
    if (write(asked[1], &byte, 1) != 1) _exit(1);
    // The end of the pipe: `between` is reaped, so the keeper is our parent.
    if (read(orphaned[0], &byte, 1) != 0) _exit(1);
    CloseAll({asked[1], orphaned[0]});
    prctl(PR_SET_NAME, name_.data());
    Become(wanted);
    return true;
  }

  // Leaves the processor to the worker that has just started, for which the other ranks wait,
  // before the next fork takes some of it. A request for one more worker ends the wait.
  void AwaitQuiet() const {
    pollfd next = {.fd = channel_, .events = POLLIN, .revents = 0};
    poll(&next, 1, kQuietMilliseconds);
  }

  // Waits for a request that is still wanted. Ends the process if there can be none any more: the
  // keeper is gone, or the program's files have changed.
  Asked AwaitRequest() {
    for (;;) {
      std::optional<Message> message = Receive(channel_);
      if (!message.has_value()) _exit(0);  // the keeper is gone
      std::vector<Fd>& fds = message->fds;
      std::optional<StartRequest> request = ParseStartRequest(message->text);
      if (!request.has_value() || fds.size() != 1 + request->streams.size()) continue;
      if (LoadedFiles() != files_) {
        Say(channel_, "old");
        _exit(0);
      }
      Asked asked{.request = *std::move(request), .answers = std::move(fds.front()), .streams = {}};
      asked.streams.assign(std::move_iterator(fds.begin() + 1), std::move_iterator(fds.end()));
      if (Say(asked.answers.get(), "taken")) return asked;  // else the keeper has given it up
    }
  }

  void Become(const Asked& asked) {
    const StartRequest& request = asked.request;
    setsid();
    DieWith(request.keeper);
    Say(asked.answers.get(), absl::StrCat("pid ", getpid()));
    BindTo(request.cpus);
    WriteFile(kOomScore, oom_score_);
    for (size_t i = 0; i < asked.streams.size(); ++i) {
      const int stream = request.streams[i] == 'i'   ? STDIN_FILENO
                         : request.streams[i] == 'o' ? STDOUT_FILENO
                                                     : STDERR_FILENO;
      if (dup2(asked.streams[i].get(), stream) < 0) _exit(1);
    }
    SetEnvironment(began_, WithChanges(Strings(began_), Strings(environ), request.environment));
    close(channel_);
    Say(asked.answers.get(), "set");
    const std::optional<Message> go = Receive(asked.answers.get());
    if (!go.has_value() || go->text != "go") _exit(1);
  }

  static std::vector<std::string> Strings(char** strings) {
    std::vector<std::string> copies;
    for (; *strings != nullptr; ++strings) copies.emplace_back(*strings);
    return copies;
  }

  const int channel_;
  char** const began_;
  std::array<char, 16> name_{};  // the program's, of TASK_COMM_LEN bytes
  std::string oom_score_;
  std::string ready_;  // what the first worker that waits reports; "" = reported
  FileVersions files_;
};

// The channel to the keeper; -1 = the keeper hasn't started this process ahead. Programs that such
// a process runs inherit the variable as well, but they don't lead a session.
int KeepersChannel() {
  const char* const text = std::getenv(kChannelVariable);
  int channel = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &channel) || getsid(0) != getpid()) return -1;
  int type = 0;
  socklen_t size = sizeof(type);
  const bool is_one = getsockopt(channel, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  return is_one && type == SOCK_SEQPACKET ? channel : -1;
}

// The program's first constructor (101 is the first priority that isn't reserved): its libraries
// are initialized before it, and all else of the program after it. Source: the System V ABI,
// "Initialization and Termination Functions"; the arguments are the GNU C library's.
[[gnu::constructor(101)]] void ParkWhereAsked(int argc, char** argv, char** /*environment*/) {
  if (!CanPark()) return;
  const int channel = KeepersChannel();
  if (channel < 0) return;
  if (ddprun_load_ahead != nullptr) ddprun_load_ahead();
  ParkedProgram(channel, argv + argc + 1).BecomeWorkers();
}

}  // namespace

// The kernel passes the address of the program's own ELF headers; a library has others.
bool CanPark() {
  const auto own_headers = reinterpret_cast<uintptr_t>(&__ehdr_start) + __ehdr_start.e_phoff;
  return own_headers == getauxval(AT_PHDR);
}

}  // namespace ddprun::worker
