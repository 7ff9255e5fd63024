#include "launcher/cli/system_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "launcher/machine/topology_probe.h"
#include "launcher/options/shell_line.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"
#include "launcher/os/tool_output.h"
#include "launcher/schedulers/slurm_step.h"
#include "tools/certs/certificates.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kFileBytesMax = 262144;
constexpr absl::Duration kSlurmPatience = absl::Seconds(5);
constexpr absl::Duration kTorchPatience = absl::Seconds(60);

// As determine_local_world_size() in torch/distributed/run.py (2.11) asks.
constexpr char kCountDevices[] = R"(import sys, torch
kind = sys.argv[1]
module = {"gpu": torch.cuda, "auto": torch.accelerator}.get(kind) or getattr(torch, kind)
print(module.device_count() if module.is_available() else 0)
)";

// 0 or the errno of running `path`; EACCES for what is no regular file, as execve(2).
int WhyNotExecutable(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return errno;
  if (!S_ISREG(facts.st_mode)) return EACCES;
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

}  // namespace

uint32_t SystemHost::CpuCount() const { return UsableCpuCount(); }

uint32_t SystemHost::CudaCount() const {
  return CudaDeviceCount(std::getenv("CUDA_VISIBLE_DEVICES"));
}

absl::StatusOr<CpuTopology> SystemHost::Topology() const { return ProbeCpuTopology(); }

absl::StatusOr<std::vector<GpuPlace>> SystemHost::Gpus(
    const std::optional<std::vector<std::string>>& visible) const {
  return ProbeGpus(visible);
}

Host::PathKind SystemHost::KindOf(const std::string& path) const {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return PathKind::kMissing;
  if (S_ISREG(facts.st_mode)) return PathKind::kFile;
  return S_ISDIR(facts.st_mode) ? PathKind::kDirectory : PathKind::kOther;
}

std::vector<std::string> SystemHost::NamesIn(const std::string& folder) const {
  constexpr size_t kMost = 4096;
  return launcher::NamesIn(folder, kMost);
}

std::vector<std::string> SystemHost::VariableNames() const {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    names.emplace_back(*entry, strcspn(*entry, "="));
  }
  return names;
}

absl::Status SystemHost::CheckReadable(const std::string& path) const {
  // Not open(2): a named pipe would block, and a second reader would disturb it.
  if (faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, Quoted(path));
}

absl::StatusOr<std::string> SystemHost::FindProgram(const std::string& name) const {
  if (absl::StrContains(name, '/')) {
    const int error = WhyNotExecutable(name);
    if (error != 0) return ErrnoStatus(error, Quoted(name));
    return name;
  }
  // execvp(3): the first that can be run; a refusal counts only when none can.
  int error = ENOENT;
  const std::string path = ProcessEnvironment("PATH").value_or("/bin:/usr/bin");
  for (absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    const int why = WhyNotExecutable(candidate);
    if (why == 0) return candidate;
    if (why == EACCES) error = EACCES;
  }
  return ErrnoStatus(error, absl::StrCat(Quoted(name), " in PATH"));
}

absl::StatusOr<std::string> SystemHost::ReadFile(const std::string& path) const {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, Quoted(path));
  std::string content;
  std::array<char, 4096> buffer{};
  while (content.size() < kFileBytesMax) {
    const ssize_t got = read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, Quoted(path));
    if (got == 0) break;
    content.append(buffer.data(), static_cast<size_t>(got));
  }
  return content;
}

// As ssh does with private keys, a file is refused that every user of the machine may read, or
// replace: a warning is easy to overlook, and meanwhile anybody may read the secret.
// What is accepted, and why:
//   - A group that may read it (0640): somebody has decided so, for people who share jobs. The
//     default umask leaves 0644, which nobody has decided.
//   - A file of another user, as root's /etc/ddprun/token: this user can't change its mode. ssh
//     looks at its own user's files alone, too.
//   - A file on a read-only mount. Kubernetes mounts secrets so, through links, with mode 0644
//     unless defaultMode says otherwise, and owned by root, who often is the only user of a
//     container. chmod would fail there, and nobody else shares the file system.
absl::Status SystemHost::CheckSecret(const std::string& path) const {
  constexpr mode_t kOthers = S_IROTH | S_IWOTH;
  struct stat facts {};
  struct statvfs file_system {};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return absl::OkStatus();
  if ((facts.st_mode & kOthers) == 0 || facts.st_uid != geteuid()) return absl::OkStatus();
  if (statvfs(path.c_str(), &file_system) == 0 && (file_system.f_flag & ST_RDONLY) != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("%s has mode %04o, so that every user of this machine may %s the secret: "
                      "chmod 600 %s",
                      Quoted(path), facts.st_mode & 07777,
                      (facts.st_mode & S_IROTH) != 0 ? "read" : "replace", ShellWord(path)));
}

absl::Status SystemHost::CheckTls(const TlsFiles& tls) const {
  DDPRUN_RETURN_IF_ERROR(CheckSecret(tls.key));
  TlsTexts texts;
  DDPRUN_ASSIGN_OR_RETURN(texts.ca, ReadFile(tls.ca));
  DDPRUN_ASSIGN_OR_RETURN(texts.certificate, ReadFile(tls.certificate));
  DDPRUN_ASSIGN_OR_RETURN(texts.key, ReadFile(tls.key));
  return CheckCertificates(tls, texts);
}

std::optional<absl::Duration> SystemHost::SlurmTimeLeft(const std::string& job_id,
                                                        int64_t end_time) const {
  if (end_time > 0) return absl::FromUnixSeconds(end_time) - absl::Now();
  // Older versions have no variable with the time.
  const absl::StatusOr<std::string> squeue = FindProgram("squeue");
  if (!squeue.ok()) return std::nullopt;
  const absl::StatusOr<std::string> left = ToolOutput(
      {*squeue, "--noheader", absl::StrCat("--jobs=", job_id), "--format=%L"}, kSlurmPatience);
  if (!left.ok()) return std::nullopt;
  return ReadSlurmTime(*left);
}

// Nodes of a cloud often have names that only Slurm knows, with NodeAddr set when they are started
// (slurm.conf(5)). Slurm isn't asked where the name resolves: there nothing is different, nor does
// every node of every job put a question to slurmctld.
std::string SystemHost::SlurmNodeAddress(const std::string& node) const {
  if (ResolveHost(node).ok()) return node;
  const absl::StatusOr<std::string> shown =
      ToolOutput({"scontrol", "--oneliner", "show", "node", node}, kSlurmPatience);
  const std::string address = shown.ok() ? ReadScontrolField(*shown, "NodeAddr") : "";
  return !address.empty() && ResolveHost(address).ok() ? address : node;
}

absl::StatusOr<uint32_t> SystemHost::TorchDevices(const std::string& python,
                                                  const std::string& kind) const {
  DDPRUN_ASSIGN_OR_RETURN(const std::string path, FindProgram(python));
  const absl::StatusOr<std::string> said =
      ToolOutput({path, "-c", kCountDevices, kind}, kTorchPatience);
  if (!said.ok()) {
    return absl::NotFoundError(
        absl::StrCat("asked for torch's devices, ", said.status().message(), "; has it torch?"));
  }
  // Imports may print something before.
  const std::vector<absl::string_view> lines = absl::StrSplit(*said, '\n', absl::SkipEmpty());
  uint32_t count = 0;
  if (lines.empty() || !absl::SimpleAtoi(lines.back(), &count) || count == 0) {
    return absl::NotFoundError(absl::StrCat("the torch of ", path, " finds no such device"));
  }
  return count;
}

// AMD's compute driver, Linux' accelerators (Gaudi and others) and Ascend's; Intel's GPUs by their
// drivers, since any screen has a node under /dev/dri.
bool SystemHost::HasOtherAccelerators() const {
  for (const char* path : {"/dev/kfd", "/dev/accel", "/dev/davinci0"}) {
    if (access(path, F_OK) == 0) return true;
  }
  if (HasUnlistedGpus()) return true;
  std::array<char, PATH_MAX> driver{};
  for (int number = 128; number < 192; ++number) {  // drm's numbers of render nodes
    const std::string link = absl::StrCat("/sys/class/drm/renderD", number, "/device/driver");
    const ssize_t length = readlink(link.c_str(), driver.data(), driver.size());
    if (length <= 0) continue;
    const std::string name = BaseName({driver.data(), static_cast<size_t>(length)});
    if (name == "xe" || name == "i915") return true;
  }
  return false;
}

std::string SystemHost::ProgramFolder() const {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  const absl::string_view text(path.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  const size_t slash = text.rfind('/');
  return slash == absl::string_view::npos ? "" : std::string(text.substr(0, slash));
}

std::string SystemHost::HostName() const { return Hostname(); }

std::string SystemHost::RandomId() const {
  const uint64_t high = (RandomNumber() & ~uint64_t{0xf000}) | 0x4000;                // version 4
  const uint64_t low = (RandomNumber() & (~uint64_t{0} >> 2)) | (uint64_t{2} << 62);  // variant
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xffff, low >> 48, low & 0xffff'ffff'ffffU);
}

}  // namespace ddprun::launcher
