#include "launcher/os/process_probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"

namespace ddprun::launcher {
namespace {

// The most that is read of a file of /proc. The fields that are used come far earlier.
constexpr size_t kTextBytesMax = 16 << 10;
// How many ancestors of a process are searched for a worker.
constexpr int kDepthMax = 64;

struct Stat {
  pid_t parent = 0;
  char state = 'S';
  uint64_t ticks = 0;
};

// "pid (name, which may hold anything) state ppid …", proc_pid_stat(5).
std::optional<Stat> ParseStat(const std::string& text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kUserTime = 11;  // field 14; the state is field 3
  Stat stat;
  if (fields.size() < kUserTime + 4 || fields[0].size() != 1) return std::nullopt;
  stat.state = fields[0][0];
  if (!absl::SimpleAtoi(fields[1], &stat.parent)) return std::nullopt;
  // The process's own time, and that of children it has waited for.
  for (size_t i = kUserTime; i < kUserTime + 4; ++i) {
    uint64_t ticks = 0;
    if (!absl::SimpleAtoi(fields[i], &ticks)) return std::nullopt;
    stat.ticks += ticks;
  }
  return stat;
}

// rchar and wchar of proc_pid_io(5): what went through read(2) and write(2).
uint64_t BytesOf(const std::string& text) {
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t bytes = 0;
    if ((absl::ConsumePrefix(&line, "rchar: ") || absl::ConsumePrefix(&line, "wchar: ")) &&
        absl::SimpleAtoi(line, &bytes)) {
      sum += bytes;
    }
  }
  return sum;
}

absl::Duration TicksToDuration(uint64_t ticks) {
  static const int64_t per_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return absl::Seconds(1) * static_cast<int64_t>(ticks) / per_second;
}

}  // namespace

std::string KernelStackText(const std::string& stack) {
  std::vector<absl::string_view> functions;
  for (absl::string_view line : absl::StrSplit(stack, '\n', absl::SkipEmpty())) {
    const size_t space = line.find(' ');  // "[<0>] pipe_read+0x31f/0x4b0"
    if (space == absl::string_view::npos) continue;
    line = line.substr(space + 1);
    functions.push_back(line.substr(0, line.find('+')));
  }
  return absl::StrJoin(functions, " < ");
}

ProcessProbe::ProcessProbe(std::string root) : root_(std::move(root)) {}

std::string ProcessProbe::Text(const std::string& path) const {
  const Fd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(fd.valid() ? kTextBytesMax : 0, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + length, text.size() - length);
    if (n <= 0) break;
    length += static_cast<size_t>(n);
  }
  text.resize(length);
  return text;
}

std::vector<WorkerVital> ProcessProbe::Look(const std::vector<pid_t>& pids) const {
  std::map<pid_t, Stat> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir((root_ + "/proc").c_str()), closedir);
  while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory.get())) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const std::optional<Stat> stat = ParseStat(Text(absl::StrCat("/proc/", pid, "/stat")));
    if (stat.has_value()) all[pid] = *stat;
  }
  std::map<pid_t, size_t> wanted;
  std::vector<WorkerVital> vitals(pids.size());
  for (size_t i = 0; i < pids.size(); ++i) {
    const auto found = all.find(pids[i]);
    if (pids[i] <= 0 || found == all.end() || found->second.state == 'Z') continue;
    wanted[pids[i]] = i;
    vitals[i].alive = true;
    vitals[i].state = found->second.state;
    const std::string base = absl::StrCat("/proc/", pids[i]);
    // The main thread's nanoseconds on a processor, nanoseconds waiting for one, and turns.
    const std::vector<std::string> schedule =
        absl::StrSplit(Text(base + "/schedstat"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    if (schedule.size() < 3 || !absl::SimpleAtoi(schedule[2], &vitals[i].turns)) {
      vitals[i].turns = 0;
    }
    const std::string stack = KernelStackText(Text(base + "/stack"));  // root only
    const std::string place = Text(base + "/wchan");
    vitals[i].where = !stack.empty() ? stack.substr(0, stack.find(' ')) : place == "0" ? "" : place;
    vitals[i].stack = absl::StrCat(stack.empty() ? place : stack, "\n", Text(base + "/syscall"));
  }
  for (const auto& [pid, stat] : all) {
    pid_t climbing = pid;
    for (int depth = 0; depth < kDepthMax && climbing > 1 && !wanted.contains(climbing); ++depth) {
      const auto found = all.find(climbing);
      climbing = found == all.end() ? 0 : found->second.parent;
    }
    const auto owner = wanted.find(climbing);
    if (owner == wanted.end()) continue;
    vitals[owner->second].cpu += TicksToDuration(stat.ticks);
    vitals[owner->second].bytes += BytesOf(Text(absl::StrCat("/proc/", pid, "/io")));
  }
  return vitals;
}

}  // namespace ddprun::launcher
