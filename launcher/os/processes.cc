#include "launcher/os/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"

namespace ddprun::launcher {
namespace {

// How much of an environment is searched for a variable.
constexpr size_t kEnvironmentBytesMax = 4 << 20;
constexpr int kStepsUpMax = 64;

std::optional<std::string> ReadFile(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

// The entries of a directory of /proc that are numbers.
std::vector<pid_t> NumberedEntries(const char* path) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path), closedir);
  if (directory == nullptr) return numbers;
  while (const dirent* entry = readdir(directory.get())) {
    pid_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::vector<pid_t> ChildrenByScan() {
  std::vector<pid_t> children;
  const pid_t self = getpid();
  for (const pid_t pid : NumberedEntries("/proc")) {
    if (ParentOf(pid) == self) children.push_back(pid);
  }
  return children;
}

}  // namespace

// The line is "pid (name, which may hold anything) state ppid …".
std::optional<pid_t> ParentOf(pid_t pid) {
  const std::optional<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.has_value()) return std::nullopt;
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  pid_t parent = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &parent)) return std::nullopt;
  return parent;
}

std::vector<pid_t> DirectChildren() {
  std::vector<pid_t> children;
  for (const pid_t task : NumberedEntries("/proc/self/task")) {
    const std::optional<std::string> list =
        ReadFile(absl::StrCat("/proc/self/task/", task, "/children"));
    // A thread that just ended has no list; its children moved to another thread.
    if (!list.has_value()) {
      if (access("/proc/thread-self/children", F_OK) != 0) return ChildrenByScan();
      continue;
    }
    for (const absl::string_view text : absl::StrSplit(*list, ' ', absl::SkipWhitespace())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(text, &child)) children.push_back(child);
    }
  }
  return children;
}

void KillChildAndGroup(pid_t child) {
  const pid_t group = getpgid(child);
  // A child that has not got its own session yet is in our group.
  if (group > 0 && group != getpgrp()) kill(-group, SIGKILL);
  kill(child, SIGKILL);
}

pid_t FindAncestor(pid_t pid, const std::function<bool(pid_t)>& wanted) {
  for (int step = 0; step < kStepsUpMax && pid > 1; ++step, pid = ParentOf(pid).value_or(0)) {
    if (wanted(pid)) return pid;
  }
  return 0;
}

std::string InitialVariable(pid_t pid, absl::string_view name) {
  const Fd fd(open(absl::StrCat("/proc/", pid, "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "";
  std::string text(1, '\0');  // each variable stands between two NULs
  char buffer[16 << 10];
  while (text.size() < kEnvironmentBytesMax) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  const std::string wanted = absl::StrCat(absl::string_view("\0", 1), name, "=");
  const size_t begin = text.find(wanted);
  if (begin == std::string::npos) return "";
  const size_t value = begin + wanted.size();
  return text.substr(value, text.find('\0', value) - value);
}

bool IsZombie(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) ==
             0 &&
         info.si_pid == child;
}

namespace {

constexpr size_t kCommandBytesMax = 120;
constexpr absl::string_view kListens = "0A";  // TCP_LISTEN, as /proc/net/tcp has it

bool IsGpu(absl::string_view path) {
  return absl::StartsWith(path, "/dev/nvidia") || path == "/dev/kfd" ||
         absl::StartsWith(path, "/dev/dri/renderD");
}

// Adds the ports of listening sockets by inode. Lines: "0: 0100007F:1F90 00000000:0000 0A … inode".
void AddListening(const std::string& path, std::map<uint64_t, uint32_t>* ports) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (fields.size() < 10 || fields[3] != kListens) continue;
    const size_t colon = fields[1].rfind(':');
    uint32_t port = 0;
    uint64_t inode = 0;
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(fields[9], &inode) ||
        !absl::SimpleHexAtoi(fields[1].substr(colon + 1), &port)) {
      continue;
    }
    (*ports)[inode] = port;
  }
}

}  // namespace

std::string HeldResource(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  if (directory == nullptr) return "what can't be seen";
  std::set<uint64_t> sockets;
  while (const dirent* entry = readdir(directory.get())) {
    char target[PATH_MAX];
    const ssize_t n =
        readlink(absl::StrCat(folder, "/", entry->d_name).c_str(), target, sizeof(target));
    if (n <= 0) continue;
    absl::string_view path(target, static_cast<size_t>(n));
    if (IsGpu(path)) return "a GPU";
    uint64_t inode = 0;
    if (absl::ConsumePrefix(&path, "socket:[") && absl::ConsumeSuffix(&path, "]") &&
        absl::SimpleAtoi(path, &inode)) {
      sockets.insert(inode);
    }
  }
  if (sockets.empty()) return "";
  std::map<uint64_t, uint32_t> ports;
  AddListening(absl::StrCat("/proc/", pid, "/net/tcp"), &ports);
  AddListening(absl::StrCat("/proc/", pid, "/net/tcp6"), &ports);
  for (const uint64_t inode : sockets) {
    if (const auto found = ports.find(inode); found != ports.end()) {
      return absl::StrCat("port ", found->second);
    }
  }
  return "";
}

std::string CommandText(pid_t pid) {
  for (const char* name : {"/cmdline", "/comm"}) {
    std::ifstream file(absl::StrCat("/proc/", pid, name));
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (char& c : text) {
      if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = ' ';
    }
    absl::StripTrailingAsciiWhitespace(&text);
    if (text.empty()) continue;
    if (text.size() <= kCommandBytesMax) return text;
    return absl::StrCat(text.substr(0, kCommandBytesMax - 3), "...");
  }
  return "";
}

}  // namespace ddprun::launcher
