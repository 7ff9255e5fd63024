// CPUs and GPUs.
#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<uint32_t> WholeCpus(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  const int64_t cpus = (quota_us - 1) / period_us + 1;
  return static_cast<uint32_t>(std::min<int64_t>(cpus, UINT32_MAX));
}

// "150000 100000\n" or "max 100000\n".
std::optional<uint32_t> QuotaV2(const std::string& directory) {
  const std::string text = ReadText(directory + "/cpu.max");
  const std::vector<absl::string_view> fields =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota = 0;
  int64_t period = 0;
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &quota) ||
      !absl::SimpleAtoi(fields[1], &period)) {
    return std::nullopt;
  }
  return WholeCpus(quota, period);
}

// Two files; a quota of -1 is no limit.
std::optional<uint32_t> QuotaV1(const std::string& directory) {
  int64_t quota = 0;
  int64_t period = 0;
  if (!absl::SimpleAtoi(ReadText(directory + "/cpu.cfs_quota_us"), &quota) ||
      !absl::SimpleAtoi(ReadText(directory + "/cpu.cfs_period_us"), &period)) {
    return std::nullopt;
  }
  return WholeCpus(quota, period);
}

void KeepLeast(std::optional<uint32_t>* least, std::optional<uint32_t> other) {
  if (other.has_value()) *least = std::min(least->value_or(UINT32_MAX), *other);
}

// The least quota of `path` and of every cgroup above it, because each limits all below. Levels
// that can't be seen (a container shows its own cgroup as the root) just give nothing.
template <typename ReadQuota>
std::optional<uint32_t> LeastQuota(const std::string& mount, std::string path, ReadQuota read) {
  std::optional<uint32_t> least;
  while (!path.empty() && path != "/") {
    KeepLeast(&least, read(mount + path));
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  KeepLeast(&least, read(mount));
  return least;
}

constexpr char kListedGpus[] = "/proc/driver/nvidia/gpus";

// How many devices CUDA_VISIBLE_DEVICES leaves of `present`.
uint32_t VisibleDevices(absl::string_view list, uint32_t present) {
  uint32_t visible = 0;
  for (absl::string_view entry : absl::StrSplit(list, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    int64_t index = 0;
    const bool is_index = absl::SimpleAtoi(entry, &index);
    if (is_index ? index < 0 || index >= present
                 : !absl::StartsWith(entry, "GPU-") && !absl::StartsWith(entry, "MIG-")) {
      break;
    }
    ++visible;
  }
  return visible;
}

}  // namespace

std::optional<uint32_t> CgroupCpuQuota(const std::string& root) {
  std::optional<uint32_t> least;
  const std::string mounts = root + "/sys/fs/cgroup";
  // Lines "id:controllers:path"; "0::path" is the v2 hierarchy (cgroups(7)).
  const std::string groups = ReadText(root + "/proc/self/cgroup");
  for (const absl::string_view line : absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string& controllers = fields[1];
    if (controllers.empty()) {
      KeepLeast(&least, LeastQuota(mounts, fields[2], QuotaV2));
      continue;
    }
    for (const absl::string_view name : absl::StrSplit(controllers, ',')) {
      if (name != "cpu") continue;
      // The directory has the name of all its controllers; "cpu" is mostly a link to it.
      KeepLeast(&least, LeastQuota(absl::StrCat(mounts, "/", controllers), fields[2], QuotaV1));
      KeepLeast(&least, LeastQuota(absl::StrCat(mounts, "/cpu"), fields[2], QuotaV1));
    }
  }
  return least;
}

CpuSet AllowedCpus() {
  // Larger than any machine's CPU mask today; a kernel with more answers EINVAL.
  constexpr uint32_t kCpusMax = 16384;
  std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(kCpusMax) / sizeof(cpu_set_t));
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  CpuSet cpus;
  if (sched_getaffinity(0, bytes, mask.data()) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < kCpusMax; ++cpu) {
    if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.insert(cpu);
  }
  return cpus;
}

uint32_t UsableCpuCount(const std::string& root) {
  const auto cpus = static_cast<uint32_t>(AllowedCpus().size());
  return std::max(1U, std::min(cpus, CgroupCpuQuota(root).value_or(UINT32_MAX)));
}

bool HasUnlistedGpus(const std::string& root) {
  const auto is_there = [&root](const char* path) {
    return access((root + path).c_str(), F_OK) == 0;
  };
  return !is_there(kListedGpus) && (is_there("/dev/dxg") || is_there("/dev/nvidiactl"));
}

uint32_t CudaDeviceCount(const char* cuda_visible_devices, const std::string& root) {
  const std::string path = root + kListedGpus;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return 0;
  uint32_t present = 0;
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] != '.') ++present;
  }
  if (cuda_visible_devices == nullptr) return present;
  return VisibleDevices(cuda_visible_devices, present);
}

}  // namespace ddprun::launcher
