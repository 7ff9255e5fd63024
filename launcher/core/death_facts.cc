#include "launcher/core/death_facts.h"

#include <algorithm>
#include <csignal>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {
namespace {

constexpr int kCoreSignals[] = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};

// The value of one "%c" in a core pattern.
std::string Specifier(char letter, const WorkerEnd& end, const std::string& hostname) {
  switch (letter) {
    case '%':
      return "%";
    case 'p':
    case 'P':
      return absl::StrCat(end.pid);
    case 's':
      return absl::StrCat(end.signal);
    case 'h':
      return hostname;
    default:
      return "*";  // user, time, name of the program or thread, …
  }
}

bool Says(const WorkerEnd& end, absl::string_view words) {
  return absl::StrContains(absl::AsciiStrToLower(WordsOf(end)), words);
}

std::string LimitText(const std::optional<uint64_t>& limit, absl::string_view what,
                      absl::string_view option) {
  return limit.has_value()
             ? absl::StrCat("limit: at most ", *limit, " ", what, " (ulimit ", option, ")")
             : "";
}

std::string BytesLimitText(const std::optional<uint64_t>& limit, absl::string_view what,
                           absl::string_view option) {
  return limit.has_value() ? absl::StrCat("limit: at most ", BytesText(*limit), " ", what,
                                          " (ulimit ", option, ")")
                           : "";
}

}  // namespace

std::string WordsOf(const WorkerEnd& end) {
  return absl::StrCat(end.message, "\n", end.stderr_tail);
}

bool DumpsCore(int signal) {
  return std::find(std::begin(kCoreSignals), std::end(kCoreSignals), signal) !=
         std::end(kCoreSignals);
}

CorePlace ExpandCorePattern(absl::string_view pattern, bool uses_pid, const WorkerEnd& end,
                            const std::string& hostname, const std::string& directory) {
  pattern = absl::StripAsciiWhitespace(pattern);
  if (absl::ConsumePrefix(&pattern, "|")) {
    const std::vector<std::string> words = absl::StrSplit(pattern, ' ', absl::SkipEmpty());
    return {.program = words.empty() ? "" : words.front()};
  }
  std::string name;
  bool has_pid = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name += pattern[i];
    } else if (++i < pattern.size()) {
      name += Specifier(pattern[i], end, hostname);
      has_pid = has_pid || pattern[i] == 'p';
    }
  }
  if (uses_pid && !has_pid) absl::StrAppend(&name, ".", end.pid);
  return {.path = absl::StartsWith(name, "/") ? name : absl::StrCat(directory, "/", name)};
}

bool IsFull(const FileSystem& file_system) {
  constexpr uint64_t kFreeBytes = 1 << 20;
  const uint64_t least = std::min(kFreeBytes, file_system.size_bytes / 100);
  return file_system.size_bytes > 0 && (file_system.free_bytes <= least ||
                                        (file_system.files > 0 && file_system.free_files == 0));
}

bool SaysFullDisk(const WorkerEnd& end) {
  return Says(end, "no space left on device") || Says(end, "disk quota exceeded");
}

std::string FullDiskFact(const std::vector<FileSystem>& file_systems) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> full;
  for (const FileSystem& each : file_systems) {
    if (!IsFull(each) || full.size() == kNamed) continue;
    const bool of_files = each.files > 0 && each.free_files == 0;
    full.push_back(absl::StrCat(each.folder, " is full (", BytesText(each.size_bytes),
                                of_files ? absl::StrCat(", all ", each.files, " inodes") : "",
                                ")"));
  }
  return full.empty() ? "" : absl::StrCat(rendezvous::kFullDiskFact, absl::StrJoin(full, ", "));
}

std::vector<std::string> LimitFacts(const WorkerEnd& end, const Limits& limits) {
  std::vector<std::string> facts;
  const auto add = [&](bool when, std::string fact) {
    if (when && !fact.empty()) facts.push_back(std::move(fact));
  };
  add(DumpsCore(end.signal) && !end.core_dumped && limits.core_bytes == 0U,
      "limit: no core file was written, because its size is limited to 0 (`ulimit -c unlimited` "
      "before ddprun allows it)");
  add(Says(end, "too many open files"), LimitText(limits.open_files, "open files", "-n"));
  add(Says(end, "can't start new thread") || Says(end, "resource temporarily unavailable"),
      LimitText(limits.processes, "processes and threads of this user", "-u"));
  add(Says(end, "cannot lock memory") || Says(end, "memlock") || Says(end, "ibv_reg_mr"),
      BytesLimitText(limits.locked_bytes, "of locked memory", "-l"));
  add(Says(end, "cannot allocate memory") || Says(end, "bad_alloc") || Says(end, "memoryerror"),
      BytesLimitText(limits.memory_bytes, "of address space", "-v"));
  add(end.signal == SIGXFSZ || Says(end, "file too large"),
      BytesLimitText(limits.file_bytes, "in one file", "-f"));
  add(end.signal == SIGXCPU, LimitText(limits.cpu_seconds, "seconds of CPU time", "-t"));
  return facts;
}

std::string MemoryFact(const WorkerEnd& end, const MemoryWitness& witness) {
  if (end.signal != SIGKILL) return "";
  std::string usage;
  if (witness.peak_bytes.has_value()) {
    absl::StrAppend(&usage, "; the cgroup had at most ", BytesText(*witness.peak_bytes));
    if (witness.limit_bytes.has_value()) {
      absl::StrAppend(&usage, " of ", BytesText(*witness.limit_bytes));
    }
  }
  const uint64_t in_cgroup = witness.cgroup_kills.value_or(0);
  if (in_cgroup > 0) {
    return absl::StrCat(rendezvous::kOutOfMemoryFact, in_cgroup,
                        in_cgroup == 1 ? " process" : " processes", " of the cgroup ",
                        witness.cgroup, " for lack of memory in this generation", usage);
  }
  if (witness.host_kills.value_or(0) > 0) {
    // No proof, because another job's process may be the one: the restart policy ignores this.
    return absl::StrCat("memory: perhaps the out-of-memory killer, which killed ",
                        *witness.host_kills, *witness.host_kills == 1 ? " process" : " processes",
                        " of this machine in this generation (`dmesg` says which)");
  }
  if (!witness.cgroup_kills.has_value() && !witness.host_kills.has_value()) return "";
  return absl::StrCat(
      "memory: not the out-of-memory killer, which killed nothing on this machine "
      "in this generation",
      usage);
}

}  // namespace ddprun::launcher
