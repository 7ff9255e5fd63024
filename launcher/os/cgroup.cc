#include "launcher/os/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
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
#include "launcher/os/folders.h"

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

}  // namespace ddprun::launcher
