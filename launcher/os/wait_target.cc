#include "launcher/os/wait_target.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

// A table of sockets or locks; a longer one isn't searched.
constexpr size_t kTableBytesMax = 4 << 20;
constexpr size_t kCommandBytesMax = 60;
constexpr size_t kNamesMax = 1024;

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  while (directory != nullptr && names.size() < kNamesMax) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const auto first = static_cast<unsigned char>(entry->d_name[0]);
    if (absl::ascii_isdigit(first)) names.emplace_back(entry->d_name);
  }
  return names;
}

std::string Link(const std::string& path) {
  std::array<char, 4096> target;
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  return size <= 0 ? "" : std::string(target.data(), static_cast<size_t>(size));
}

// "0100007F:1F90" of proc_net_tcp(5): words of the address as the machine has them in memory.
std::string AddressText(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, ':');
  std::array<uint32_t, 4> words{};
  uint32_t port = 0;
  const size_t count = parts.first.size() / 8;
  if (count > words.size() || !absl::SimpleHexAtoi(parts.second, &port)) return "";
  for (size_t i = 0; i < count; ++i) {
    if (!absl::SimpleHexAtoi(parts.first.substr(8 * i, 8), &words[i])) return "";
  }
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (inet_ntop(count == 1 ? AF_INET : AF_INET6, words.data(), name.data(), name.size()) ==
      nullptr) {
    return "";
  }
  return count == 1 ? absl::StrCat(name.data(), ":", port)
                    : absl::StrCat("[", name.data(), "]:", port);
}

}  // namespace

std::string ProcText(const std::string& path, size_t bytes_max) {
  std::string text = ReadFile(path, bytes_max).value_or("");
  absl::StripAsciiWhitespace(&text);
  return text;
}

char ProcState(const std::string& folder) {
  const std::string stat = ProcText(folder + "stat");
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  return name_end == std::string::npos || stat.size() < name_end + 3 ? '?' : stat[name_end + 2];
}

std::string WaitTarget::Socket(const std::string& inode) const {
  for (const absl::string_view table : {"tcp", "tcp6", "udp", "udp6", "unix"}) {
    const std::string text = ProcText(absl::StrCat("/proc/", pid_, "/net/", table), kTableBytesMax);
    // The number alone is found sooner than all lines are split.
    const std::string word = absl::StrCat(" ", inode);
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const size_t begin = text.rfind('\n', at) + 1;
      const std::vector<absl::string_view> fields =
          absl::StrSplit(absl::string_view(text).substr(begin, text.find('\n', at) - begin), ' ',
                         absl::SkipEmpty());
      if (table == "unix") {
        if (fields.size() < 7 || fields[6] != inode) continue;
        return absl::StrCat("unix socket", fields.size() > 7 ? " " : "",
                            fields.size() > 7 ? fields[7] : "");
      }
      if (fields.size() < 10 || fields[9] != inode) continue;
      const bool has_peer = !absl::EndsWith(fields[2], ":0000");
      return absl::StrCat(absl::StripSuffix(table, "6"), " ",
                          AddressText(has_peer ? fields[2] : fields[1]));
    }
  }
  return "socket";
}

std::string WaitTarget::PipeOfChild(const std::string& pipe) const {
  for (const pid_t child : Children(pid_)) {
    const std::string folder = absl::StrCat("/proc/", child, "/fd/");
    for (const std::string& name : Names(folder)) {
      if (Link(folder + name) != pipe) continue;
      return absl::StrCat("a pipe of its child ", child, " (", Command(child), ")");
    }
  }
  return "pipe";
}

std::string WaitTarget::Descriptor(int fd) const {
  const std::string link = Link(absl::StrCat("/proc/", pid_, "/fd/", fd));
  absl::string_view rest = link;
  if (link.empty()) return absl::StrCat("descriptor ", fd);
  if (absl::ConsumePrefix(&rest, "socket:["))
    return Socket(std::string(absl::StripSuffix(rest, "]")));
  if (absl::StartsWith(link, "pipe:[")) return PipeOfChild(link);
  if (absl::StartsWith(link, "/dev/pts/") || absl::StartsWith(link, "/dev/tty")) return "terminal";
  if (absl::ConsumePrefix(&rest, "anon_inode:")) {
    return std::string(absl::StripSuffix(absl::StripPrefix(rest, "["), "]"));
  }
  return link;
}

std::vector<int> WaitTarget::Watched(int epoll_fd, size_t max) const {
  const std::string text = ProcText(absl::StrCat("/proc/", pid_, "/fdinfo/", epoll_fd));
  std::vector<int> watched;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int fd = 0;
    if (watched.size() < max && absl::ConsumePrefix(&line, "tfd:") &&
        absl::SimpleAtoi(line.substr(0, line.find("events")), &fd)) {
      watched.push_back(fd);
    }
  }
  return watched;
}

// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:332280 0 EOF
// 1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:332280 0 EOF
std::string WaitTarget::LockHolder() const {
  const std::string text = ProcText("/proc/locks", kTableBytesMax);
  std::string holder;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const bool waits = fields.size() > 5 && fields[1] == "->";
    if (!waits && fields.size() > 4) holder = std::string(fields[4]);
    pid_t pid = 0;
    if (!waits || fields[5] != absl::StrCat(pid_)) continue;
    // A lock of an open file description belongs to no process: -1.
    if (!absl::SimpleAtoi(holder, &pid) || pid <= 0) return "";
    return absl::StrCat("pid ", pid, " (", Command(pid), ")");
  }
  return "";
}

std::optional<size_t> WaitTarget::IoUrings() const {
  const std::string folder = absl::StrCat("/proc/", pid_, "/fd/");
  const std::vector<std::string> names = Names(folder);
  if (names.empty() || names.size() == kNamesMax) return std::nullopt;
  return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return absl::StrContains(Link(folder + name), "io_uring");
  });
}

std::vector<pid_t> WaitTarget::Children(pid_t pid) {
  std::vector<pid_t> children;
  const std::string folder = absl::StrCat("/proc/", pid, "/task/");
  for (const std::string& task : Names(folder)) {
    const std::string text = ProcText(absl::StrCat(folder, task, "/children"));
    for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) children.push_back(child);
    }
  }
  return children;
}

bool WaitTarget::CanReadMemory(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/task/");
  const std::vector<std::string> tasks = Names(folder);
  for (const std::string& task : tasks) {
    const char state = ProcState(absl::StrCat(folder, task, "/"));
    if (state == 'D' || state == '?') return false;
  }
  return !tasks.empty();
}

std::string WaitTarget::Command(pid_t pid) {
  std::string command =
      CanReadMemory(pid) ? ProcText(absl::StrCat("/proc/", pid, "/cmdline")) : std::string();
  for (char& letter : command) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(letter))) letter = ' ';
  }
  absl::StripAsciiWhitespace(&command);
  if (command.empty()) {
    command = ProcText(absl::StrCat("/proc/", pid, "/comm"));
  }
  if (command.size() > kCommandBytesMax) command = command.substr(0, kCommandBytesMax) + "…";
  return command.empty() ? "unknown" : command;
}

}  // namespace ddprun::launcher
