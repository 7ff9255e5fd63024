#include "launcher/os/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kName = "ddprun-";

struct CgroupMount {
  std::string root;  // the cgroup that is mounted
  std::string folder;
};

// Lines of proc_pid_mountinfo(5): "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw".
std::optional<CgroupMount> FindCgroupMount(const std::string& mountinfo) {
  std::ifstream file(mountinfo);
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<std::string> fields = absl::StrSplit(halves.first, ' ');
    // A backslash begins an escaped character, which no cgroup file system's place has.
    if (!absl::StartsWith(halves.second, "cgroup2 ") || fields.size() < 6 ||
        absl::StrContains(fields[4], '\\')) {
      continue;
    }
    return CgroupMount{.root = fields[3], .folder = fields[4]};
  }
  return std::nullopt;
}

// "0::/user.slice/job" of proc_pid_cgroup(5).
std::string OwnCgroup(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "0::")) return std::string(rest);
  }
  return "";
}

Fd OpenFolder(const std::string& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void KillCgroup(const std::string& path) {
  const Fd file(open(absl::StrCat(path, "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  // If this fails, the caller's rounds kill the processes one by one.
  if (file.valid()) [[maybe_unused]]
    const ssize_t n = write(file.get(), "1", 1);
}

// "ddprun-<pid namespace>-": a pid means something only in its namespace.
std::string NamePrefix() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return absl::StrCat(kName, "0-");
  return absl::StrCat(kName, info.st_ino, "-");
}

// The pid in "ddprun-<PID namespace>-<pid>"; none: it isn't ours, as ddprun-daemon.service.
std::optional<pid_t> AgentOf(absl::string_view name) {
  uint64_t pid_namespace = 0;
  pid_t agent = 0;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  const bool ours = parts.size() == 3 && absl::StrCat(parts[0], "-") == kName &&
                    absl::SimpleAtoi(parts[1], &pid_namespace) &&
                    absl::SimpleAtoi(parts[2], &agent);
  return ours ? std::optional(agent) : std::nullopt;
}

// Removes "ddprun-<another PID namespace>-<pid>" if it is unclaimed and empty. The end of that
// namespace has killed its processes.
void RemoveForeign(const std::string& path) {
  const Fd folder = OpenFolder(path);
  if (folder.valid() && flock(folder.get(), LOCK_EX | LOCK_NB) == 0) RemoveEmptyFolders(path);
}

// A folder that isn't empty yet, because what was killed is still dying, stays for the next agent.
void ClearLeftovers(const std::string& parent, const std::string& prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(parent.c_str()), closedir);
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory.get())) {
    const absl::string_view name = entry->d_name;
    const std::optional<pid_t> owner = AgentOf(name);
    if (!owner.has_value()) continue;
    const std::string path = absl::StrCat(parent, "/", name);
    if (!absl::StartsWith(name, prefix)) {
      RemoveForeign(path);
      continue;
    }
    const pid_t agent = *owner;
    if (agent != getpid() && (kill(agent, 0) == 0 || errno != ESRCH)) continue;
    KillCgroup(path);
    RemoveEmptyFolders(path);
  }
}

absl::Status Unusable(absl::string_view why) { return absl::FailedPreconditionError(why); }

// The folder of this process's cgroup. Errors: FAILED_PRECONDITION — it can't be seen from here.
absl::StatusOr<std::string> OwnFolder(const std::string& root) {
  const auto mount = FindCgroupMount(absl::StrCat(root, "/proc/self/mountinfo"));
  if (!mount.has_value()) return Unusable("no cgroup2 file system is mounted");
  const std::string own = OwnCgroup(absl::StrCat(root, "/proc/self/cgroup"));
  absl::string_view below = own;
  if (mount->root != "/" && !absl::ConsumePrefix(&below, mount->root)) {
    return Unusable(absl::StrCat("this process's cgroup, ", own, ", is not below ", mount->folder));
  }
  return absl::StrCat(root, mount->folder, absl::StartsWith(below, "/") ? "" : "/",
                      absl::StripSuffix(below, "/"));
}

}  // namespace

std::string OwnCgroupFolder() { return OwnFolder("").value_or(""); }

Fd ClaimCgroup(const std::string& folder) {
  Fd claim = OpenFolder(folder);
  // If that fails, another agent is checking the folder now and removes it if it is empty.
  if (claim.valid() && flock(claim.get(), LOCK_SH | LOCK_NB) != 0) return Fd();
  return claim;
}

absl::Status EnterCgroup(const std::string& folder, pid_t pid) {
  const std::string path = absl::StrCat(folder, "/cgroup.procs");
  const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = absl::StrCat(pid);
  if (!file.valid() || write(file.get(), text.data(), text.size()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("write to ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeWorkerCgroup(const std::string& root) {
  // Slurm signals and waits for what is in the cgroups that it made itself.
  if (std::getenv("SLURM_JOB_ID") != nullptr) return Unusable("Slurm has cgroups of its own");
  DDPRUN_ASSIGN_OR_RETURN(const std::string parent, OwnFolder(root));
  // Moving a process needs write access to the common parent of both cgroups.
  if (access(absl::StrCat(parent, "/cgroup.procs").c_str(), W_OK) != 0) {
    return Unusable(absl::StrCat("no right to fill ", parent));
  }
  const std::string prefix = NamePrefix();
  ClearLeftovers(parent, prefix);
  const std::string path = absl::StrCat(absl::StripSuffix(parent, "/"), "/", prefix, getpid());
  if (mkdir(path.c_str(), 0755) != 0) {
    return Unusable(ErrnoStatus(errno, absl::StrCat("make ", path)).message());
  }
  if (access(absl::StrCat(path, "/cgroup.kill").c_str(), W_OK) != 0) {
    rmdir(path.c_str());
    return Unusable("this kernel has no cgroup.kill");
  }
  return path;
}

WorkerCgroup::WorkerCgroup(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) folder_ = ClaimCgroup(path_);
}

void WorkerCgroup::Kill() const {
  if (!path_.empty()) KillCgroup(path_);
}

void WorkerCgroup::Renew() {
  Remove();
  // Without a new one workers stay in the agent's own.
  *this = mkdir(path_.c_str(), 0755) == 0 ? WorkerCgroup(path_) : WorkerCgroup();
}

void WorkerCgroup::MoveOut(const std::string& folder) const {
  // Processes that fork meanwhile are moved in the next round.
  constexpr int kRounds = 16;
  bool moved = !path_.empty() && !folder.empty();
  for (int round = 0; moved && round < kRounds; ++round) {
    moved = false;
    std::ifstream file(absl::StrCat(path_, "/cgroup.procs"));
    for (pid_t pid = 0; file >> pid;) moved |= EnterCgroup(folder, pid).ok();
  }
}

// Removes the cgroup with the cgroups of a ddprun that ran among the workers.
void WorkerCgroup::Remove() const { RemoveEmptyFolders(path_); }

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
