#include "launcher/os/child_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"

namespace ddprun::launcher {
namespace {

// How much of an environment is searched for a variable.
constexpr size_t kEnvironmentBytesMax = 4 << 20;

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

}  // namespace ddprun::launcher
