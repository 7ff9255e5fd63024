#include "launcher/os/memory_cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

// v1 says a number beyond any machine's memory where there is no limit, v2 "max".
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool HasLessLeft(const Memory& a, const Memory& b) {
  return static_cast<double>(a.available) * static_cast<double>(b.total) <
         static_cast<double>(b.available) * static_cast<double>(a.total);
}

// The memory of one cgroup; nullopt = no limit. Page cache counts as available, because the kernel
// frees it first.
std::optional<Memory> MemoryOf(const std::string& folder, bool is_v2) {
  const auto limit =
      NumberIn(TextOf(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"))).value_or(0);
  const auto used =
      NumberIn(TextOf(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes")));
  if (limit == 0 || limit >= kUnlimited || !used.has_value()) return std::nullopt;
  const std::string stat = TextOf(folder + "/memory.stat");
  const absl::string_view prefix = is_v2 ? "" : "total_";
  uint64_t cache = 0;
  for (const absl::string_view list : {"inactive_file", "active_file"}) {
    cache += NumberOf(absl::StrCat(prefix, list), stat).value_or(0);
  }
  const uint64_t held = *used - std::min(*used, cache);
  return Memory{.total = limit, .available = limit - std::min(limit, held), .of_cgroup = true};
}

}  // namespace

std::optional<uint64_t> NumberIn(absl::string_view text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number)) return std::nullopt;
  return number;
}

std::optional<uint64_t> NumberOf(absl::string_view name, absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, name) && absl::ConsumePrefix(&line, " ")) return NumberIn(line);
  }
  return std::nullopt;
}

// In a container the path may be the host's, and ours the root of what is mounted.
std::optional<MemoryCgroup> FindMemoryCgroup(const std::string& root) {
  const std::string own = TextOf(root + "/proc/self/cgroup");
  for (absl::string_view line : absl::StrSplit(own, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool v2 = fields[0] == "0";
    if (!v2 && fields[1] != "memory") continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* file = v2 ? "/memory.events" : "/memory.oom_control";
    const std::string path = fields[2] == "/" ? "" : std::string(fields[2]);
    for (const std::string& folder : {mount + path, mount}) {
      const std::string found = TextOf(absl::StrCat(root, folder, file));
      if (NumberOf("oom_kill", found).has_value()) return MemoryCgroup{mount, folder, v2};
    }
  }
  return std::nullopt;
}

std::optional<Memory> MachineMemory(const std::string& root) {
  const std::string text = TextOf(root + "/proc/meminfo");
  const auto bytes = [&](absl::string_view name) -> std::optional<uint64_t> {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!absl::ConsumePrefix(&line, name) || !absl::ConsumeSuffix(&line, " kB")) continue;
      const std::optional<uint64_t> kibibytes = NumberIn(line);
      return kibibytes.has_value() ? std::optional(*kibibytes << 10) : std::nullopt;
    }
    return std::nullopt;
  };
  const std::optional<uint64_t> total = bytes("MemTotal:");
  if (total.value_or(0) == 0) return std::nullopt;
  return Memory{.total = *total, .available = bytes("MemAvailable:").value_or(0)};
}

std::optional<Memory> OwnMemory(const std::string& root) {
  std::optional<Memory> least = MachineMemory(root);
  const std::optional<MemoryCgroup> cgroup = FindMemoryCgroup(root);
  if (!cgroup.has_value()) return least;
  std::string folder = cgroup->folder;
  while (true) {
    const std::optional<Memory> one = MemoryOf(root + folder, cgroup->is_v2);
    if (one.has_value() && (!least.has_value() || HasLessLeft(*one, *least))) least = one;
    if (folder.size() <= cgroup->mount.size()) return least;
    folder.resize(folder.rfind('/'));
  }
}

}  // namespace ddprun::launcher
