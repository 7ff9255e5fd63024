#include "launcher/cli/system_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/certs/certificate_check.h"
#include "launcher/os/host_probe.h"
#include "launcher/os/tool_output.h"
#include "launcher/os/topology_probe.h"
#include "launcher/schedulers/slurm_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kFileBytesMax = 65536;
constexpr absl::Duration kSqueuePatience = absl::Seconds(5);

// 0 or the errno of running `path`; EACCES for what is no regular file, as execve(2).
int WhyNotExecutable(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return errno;
  if (!S_ISREG(facts.st_mode)) return EACCES;
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

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

absl::Status SystemHost::CheckTls(const TlsFiles& tls) const {
  TlsTexts texts;
  DDPRUN_ASSIGN_OR_RETURN(texts.ca, ReadFile(tls.ca));
  DDPRUN_ASSIGN_OR_RETURN(texts.certificate, ReadFile(tls.certificate));
  DDPRUN_ASSIGN_OR_RETURN(texts.key, ReadFile(tls.key));
  return CheckCertificates(tls, texts);
}

std::optional<absl::Duration> SystemHost::SlurmTimeLeft(const std::string& job_id,
                                                        int64_t end_time) const {
  if (end_time > 0) return absl::FromUnixSeconds(end_time) - absl::Now();
  // Not all versions say the time in a variable.
  const absl::StatusOr<std::string> squeue = FindProgram("squeue");
  if (!squeue.ok()) return std::nullopt;
  const absl::StatusOr<std::string> left = ToolOutput(
      {*squeue, "--noheader", absl::StrCat("--jobs=", job_id), "--format=%L"}, kSqueuePatience);
  if (!left.ok()) return std::nullopt;
  return ReadSlurmTime(*left);
}

std::string SystemHost::HostName() const { return Hostname(); }

std::string SystemHost::RandomId() const {
  const uint64_t high = (RandomNumber() & ~uint64_t{0xf000}) | 0x4000;                // version 4
  const uint64_t low = (RandomNumber() & (~uint64_t{0} >> 2)) | (uint64_t{2} << 62);  // variant
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xffff, low >> 48, low & 0xffff'ffff'ffffU);
}

}  // namespace ddprun::launcher
