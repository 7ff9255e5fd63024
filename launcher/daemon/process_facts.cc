#include "launcher/daemon/process_facts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "launcher/daemon/core/spare_shelf.h"
#include "launcher/os/text_files.h"

namespace ddprun::launcher {
namespace {

using daemon::v1::Setup;

constexpr char kOomFile[] = "/proc/self/oom_score_adj";
constexpr size_t kFileBytesMax = 1 << 20;
// More CPUs than any machine has.
constexpr size_t kCpusMax = 1 << 13;
using CpuMask = std::array<cpu_set_t, kCpusMax / CPU_SETSIZE>;

// Lines of /proc/self/status that say what a process may and is.
constexpr const char* kStatusLines[] = {
    "Uid",    "Gid",    "Groups",     "CapInh",  "CapPrm",
    "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Mems_allowed_list"};
constexpr const char* kNamespaces[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};

std::string LinkOf(const std::string& path) {
  std::string target(256, '\0');
  const ssize_t n = readlink(path.c_str(), target.data(), target.size());
  target.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return target;
}

std::string PlaceOf(const char* path) {
  struct stat facts {};
  if (stat(path, &facts) != 0) return "";
  return absl::StrCat(facts.st_dev, ":", facts.st_ino);
}

absl::StatusOr<uint32_t> ReadStatus(std::map<std::string, std::string>* facts) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string status, ReadFile("/proc/self/status", kFileBytesMax));
  uint32_t mask = 0;
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(":\t", 1));
    if (parts.first == "Umask") {
      for (const char digit : parts.second) mask = mask * 8 + static_cast<uint32_t>(digit - '0');
    }
    for (const char* name : kStatusLines) {
      if (parts.first == name) (*facts)[name] = parts.second;
    }
  }
  return mask;
}

absl::Status ReadFacts(std::map<std::string, std::string>* facts) {
  for (const char* name : kNamespaces) {
    (*facts)[absl::StrCat(name, " namespace")] = LinkOf(absl::StrCat("/proc/self/ns/", name));
  }
  (*facts)["root folder"] = PlaceOf("/");
  (*facts)["working folder"] = absl::StrCat(LinkOf("/proc/self/cwd"), " ", PlaceOf("."));
  (*facts)["scheduling policy"] = absl::StrCat(sched_getscheduler(0));
  (*facts)["security label"] = std::string(
      absl::StripSuffix(ReadFile("/proc/self/attr/current", kFileBytesMax).value_or(""), "\n"));
  (*facts)["core dump filter"] = ReadFile("/proc/self/coredump_filter", kFileBytesMax).value_or("");
  DDPRUN_ASSIGN_OR_RETURN(const std::string cgroups, ReadFile("/proc/self/cgroup", kFileBytesMax));
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && parts[0] != "0") {
      (*facts)[absl::StrCat("cgroup of ", parts[1])] = parts[2];
    }
  }
  return absl::OkStatus();
}

absl::Status SetLimits(const Setup& setup) {
  for (const daemon::v1::Limit& limit : setup.limits()) {
    const rlimit value{.rlim_cur = limit.soft(), .rlim_max = limit.hard()};
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource()), &value) != 0) {
      return ErrnoStatus(errno, absl::StrCat("setrlimit of ", limit.resource()));
    }
  }
  return absl::OkStatus();
}

absl::Status SetScheduling(const Setup& setup) {
  CpuMask cpus{};
  for (const uint32_t cpu : setup.cpus()) {
    if (cpu < kCpusMax) CPU_SET_S(cpu, sizeof(cpus), cpus.data());
  }
  if (sched_setaffinity(0, sizeof(cpus), cpus.data()) != 0) {
    return ErrnoStatus(errno, "sched_setaffinity");
  }
  if (setpriority(PRIO_PROCESS, 0, setup.nice()) != 0) return ErrnoStatus(errno, "setpriority");
  // Not by WriteFile(), because a file of /proc can't be replaced.
  const Fd file(open(kOomFile, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open ", kOomFile));
  return WriteAll(file.get(), absl::StrCat(setup.oom_score_adj()));
}

}  // namespace

absl::StatusOr<Setup> OwnSetup() {
  Setup setup;
  std::map<std::string, std::string> facts;
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t mask, ReadStatus(&facts));
  DDPRUN_RETURN_IF_ERROR(ReadFacts(&facts));
  setup.set_umask(mask);
  setup.set_folder(LinkOf("/proc/self/cwd"));
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit value{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) continue;
    daemon::v1::Limit* limit = setup.add_limits();
    limit->set_resource(resource);
    limit->set_soft(value.rlim_cur);
    limit->set_hard(value.rlim_max);
  }
  setup.set_nice(getpriority(PRIO_PROCESS, 0));
  CpuMask cpus{};
  if (sched_getaffinity(0, sizeof(cpus), cpus.data()) != 0) {
    return ErrnoStatus(errno, "sched_getaffinity");
  }
  for (size_t cpu = 0; cpu < kCpusMax; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(cpus), cpus.data())) setup.add_cpus(static_cast<uint32_t>(cpu));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string oom, ReadFile(kOomFile, kFileBytesMax));
  int32_t score = 0;
  if (absl::SimpleAtoi(oom, &score)) setup.set_oom_score_adj(score);
  for (auto& [name, value] : facts) (*setup.mutable_facts())[name] = value;
  return setup;
}

absl::Status Become(const Setup& setup) {
  if (chdir(setup.folder().c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chdir '", setup.folder(), "'"));
  }
  umask(setup.umask());
  DDPRUN_RETURN_IF_ERROR(SetScheduling(setup));
  DDPRUN_RETURN_IF_ERROR(SetLimits(setup));
  DDPRUN_ASSIGN_OR_RETURN(const Setup own, OwnSetup());
  if (const std::string differs =
          Difference(SpareFacts(own.facts().begin(), own.facts().end()),
                     SpareFacts(setup.facts().begin(), setup.facts().end()));
      !differs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon can't have what the job has: ", differs));
  }
  return absl::OkStatus();
}

std::string ProgramIdentity() {
  struct stat facts {};
  if (stat("/proc/self/exe", &facts) != 0) return "";
  return absl::StrCat(facts.st_dev, ":", facts.st_ino, ":", facts.st_size, ":",
                      facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec);
}

}  // namespace ddprun::launcher
