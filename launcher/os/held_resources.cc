#include "launcher/os/held_resources.h"

#include <dirent.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
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
