#include "tools/doctor/machine_probe.h"

#include <gnu/libc-version.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/thread.h"
#include "launcher/machine/host_probe.h"
#include "launcher/machine/nvml_library.h"
#include "launcher/machine/topology_probe.h"
#include "launcher/os/files.h"
#include "launcher/os/tool_output.h"
#include "launcher/warm/core/learned.h"
#include "tools/doctor/core/machine_parsers.h"

namespace ddprun::launcher {

std::string TextOfFile(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text(kBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string FirstLine(const std::string& path) {
  constexpr size_t kShownBytes = 200;
  const std::string text = TextOfFile(path);
  return Shown(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))), kShownBytes);
}

namespace {

using Device = NvmlLibrary::Device;
using LongCount = unsigned long long;  // NOLINT(google-runtime-int): the library's type

// nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  std::array<unsigned int, 5> numbers;  // domain, bus, device, ids of device and subsystem
  std::array<char, 32> bus_id;
};
struct MemoryInfo {  // nvmlMemory_t
  LongCount total;
  LongCount free;
  LongCount used;
};

// The questions about one GPU. Those that the library doesn't know, or the GPU doesn't answer, have
// no answer.
class GpuQuestions {
 public:
  explicit GpuQuestions(const NvmlLibrary& library) : library_(library) {}

  // A GPU that was lost after the driver had found it still has a handle, but answers no query.
  absl::Status CheckAnswers(Device device) const {
    const char* const name = "nvmlDeviceGetMemoryInfo";
    const auto ask = library_.Find<int (*)(Device, MemoryInfo*)>({name});
    MemoryInfo memory{};
    if (ask == nullptr || ask(device, &memory) != NvmlLibrary::kGpuIsLost) return absl::OkStatus();
    return NvmlLibrary::ToStatus(NvmlLibrary::kGpuIsLost, name);
  }

  GpuFacts Ask(Device device) const {
    GpuFacts gpu{.name = Text("nvmlDeviceGetName", device),
                 .uuid = Text("nvmlDeviceGetUUID", device)};
    PciInfo pci{};
    if (Call("nvmlDeviceGetPciInfo_v3", device, &pci)) gpu.pci_id = TextOf(pci.bus_id);
    MemoryInfo memory{};
    if (Call("nvmlDeviceGetMemoryInfo", device, &memory)) {
      gpu.memory = memory.total;
      gpu.memory_free = memory.free;
    }
    ComputeCapability compute;
    if (Call("nvmlDeviceGetCudaComputeCapability", device, &compute.major, &compute.minor)) {
      gpu.compute = compute;
    }
    gpu.ecc = FirstOfTwo("nvmlDeviceGetEccMode", device);
    gpu.mig = FirstOfTwo("nvmlDeviceGetMigMode", device);
    int persistence = 0;
    if (Call("nvmlDeviceGetPersistenceMode", device, &persistence)) {
      gpu.persistence = persistence != 0;
    }
    AskErrors(device, &gpu);
    return gpu;
  }

 private:
  template <typename... Arguments>
  bool Call(const char* name, Device device, Arguments... arguments) const {
    const auto function = library_.Find<int (*)(Device, Arguments...)>({name});
    return function != nullptr && function(device, arguments...) == NvmlLibrary::kSuccess;
  }

  template <size_t kSize>
  static std::string TextOf(std::array<char, kSize> bytes) {
    bytes.back() = '\0';
    return Shown(bytes.data(), kSize);
  }

  std::string Text(const char* name, Device device) const {
    std::array<char, 128> text{};
    const auto size = static_cast<unsigned int>(text.size());
    return Call(name, device, text.data(), size) ? TextOf(text) : "";
  }

  // The current value; the library also returns the value after a restart.
  std::optional<bool> FirstOfTwo(const char* name, Device device) const {
    unsigned int now = 0;
    unsigned int later = 0;
    if (!Call(name, device, &now, &later)) return std::nullopt;
    return now != 0;
  }

  void AskErrors(Device device, GpuFacts* gpu) const {
    constexpr int kCorrected = 0;
    constexpr int kUncorrected = 1;
    constexpr int kSinceTheDriverWasLoaded = 0;
    LongCount count = 0;
    const char* const total = "nvmlDeviceGetTotalEccErrors";
    if (Call(total, device, kCorrected, kSinceTheDriverWasLoaded, &count)) {
      gpu->ecc_corrected = count;
    }
    if (Call(total, device, kUncorrected, kSinceTheDriverWasLoaded, &count)) {
      gpu->ecc_uncorrected = count;
    }
    std::array<unsigned int, 4> rows{};  // corrected, uncorrected, pending, failed
    if (Call("nvmlDeviceGetRemappedRows", device, &rows[0], &rows[1], &rows[2], &rows[3])) {
      gpu->remap_pending = rows[2] != 0;
      gpu->remap_failed = rows[3] != 0;
    }
  }

  const NvmlLibrary& library_;
};

std::vector<GpuProcess> ProcessesOn(const NvmlLibrary& library, Device device,
                                    const std::string& root) {
  constexpr LongCount kNotTold = ~LongCount{0};
  std::vector<GpuProcess> processes;
  const auto found = library.Processes(device);
  if (!found.ok()) return processes;  // as old drivers do in MIG mode
  for (const NvmlLibrary::ProcessInfo& info : *found) {
    GpuProcess process{.pid = info.pid};
    if (info.used_memory != kNotTold) process.memory = info.used_memory;
    process.name = FirstLine(absl::StrCat(root, "/proc/", info.pid, "/comm"));
    processes.push_back(std::move(process));
  }
  return processes;
}

GpuFacts AskOne(const NvmlLibrary& library, const absl::StatusOr<Device>& device,
                const std::string& root) {
  const GpuQuestions questions(library);
  const absl::Status answers = device.ok() ? questions.CheckAnswers(*device) : device.status();
  if (!answers.ok()) return {.why_not = std::string(answers.message())};
  GpuFacts gpu = questions.Ask(*device);
  gpu.processes = ProcessesOn(library, *device, root);
  return gpu;
}

absl::Status AskAll(const std::string& root, GpuInventory* inventory) {
  DDPRUN_ASSIGN_OR_RETURN(NvmlLibrary library, NvmlLibrary::Load());
  DDPRUN_RETURN_IF_ERROR(library.Init());
  std::array<char, 96> version{};
  const auto driver = library.Find<int (*)(char*, unsigned int)>({"nvmlSystemGetDriverVersion"});
  if (driver != nullptr && driver(version.data(), version.size() - 1) == NvmlLibrary::kSuccess) {
    inventory->driver.version = Shown(version.data(), version.size());
  }
  int cuda = 0;
  const auto newest = library.Find<int (*)(int*)>({"nvmlSystemGetCudaDriverVersion_v2"});
  if (newest != nullptr && newest(&cuda) == NvmlLibrary::kSuccess) inventory->driver.cuda = cuda;
  DDPRUN_ASSIGN_OR_RETURN(const auto devices, library.Devices());
  for (const absl::StatusOr<Device>& device : devices) {
    inventory->gpus.push_back(AskOne(library, device, root));
  }
  return absl::OkStatus();
}

}  // namespace

GpuInventory TakeGpuInventory(const std::string& root) {
  GpuInventory inventory;
  inventory.driver.version = ParseDriverVersion(TextOfFile(root + "/proc/driver/nvidia/version"));
  inventory.driver.gpus_of_kernel = CudaDeviceCount(nullptr, root);
  const absl::Status asked = AskAll(root, &inventory);
  inventory.driver.why_not = std::string(asked.message());
  return inventory;
}

namespace {

// The result of `ask` on a thread of its own; nullopt = none within `limit`, and the thread is
// abandoned.
template <typename Answer>
std::optional<Answer> Within(absl::Duration limit, std::function<Answer()> ask) {
  auto task = std::make_shared<std::packaged_task<Answer()>>(std::move(ask));
  std::future<Answer> answer = task->get_future();
  absl::StatusOr<std::thread> thread = StartThread("a probe", [task] { (*task)(); });
  if (!thread.ok()) return std::nullopt;
  thread->detach();
  if (answer.wait_for(absl::ToChronoMilliseconds(limit)) != std::future_status::ready) {
    return std::nullopt;
  }
  return answer.get();
}

std::string NoAnswer(const char* who, absl::Duration limit) {
  return absl::StrCat(who, " gave no answer within ", absl::FormatDuration(limit));
}

CpuFacts ProbeCpus(const std::string& root) {
  CpuFacts cpu{.model = ParseCpuModel(TextOfFile(root + "/proc/cpuinfo"))};
  cpu.usable = UsableCpuCount(root);
  cpu.quota = CgroupCpuQuota(root);
  const absl::StatusOr<CpuTopology> topology = ProbeCpuTopology();
  if (!topology.ok()) {
    cpu.online = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    cpu.why_no_topology = std::string(topology.status().message());
    return cpu;
  }
  std::set<uint32_t> cores;
  std::set<uint32_t> packages;
  for (const CpuTopology::Cpu& one : topology->cpus) {
    cores.insert(one.core);
    packages.insert(one.package);
  }
  cpu.online = static_cast<uint32_t>(topology->cpus.size());
  cpu.cores = static_cast<uint32_t>(cores.size());
  cpu.packages = static_cast<uint32_t>(packages.size());
  cpu.numa_nodes = topology->numa_nodes;
  return cpu;
}

std::optional<SharedMemoryFacts> ProbeSharedMemory(const std::string& root) {
  struct statvfs facts {};
  if (statvfs((root + "/dev/shm").c_str(), &facts) != 0) return std::nullopt;
  return SharedMemoryFacts{.total = uint64_t{facts.f_blocks} * facts.f_frsize,
                           .free = uint64_t{facts.f_bavail} * facts.f_frsize};
}

HostnameFacts ProbeHostname(absl::Duration limit) {
  HostnameFacts host{.name = Hostname()};
  using Addresses = absl::StatusOr<std::vector<std::string>>;
  const auto found =
      Within<Addresses>(limit, [name = host.name]() -> Addresses { return ResolveHost(name); });
  if (!found.has_value()) {
    host.why_not = NoAnswer("the resolver", limit);
  } else if (found->ok()) {
    host.addresses = **found;
  } else {
    host.why_not = std::string(found->status().message());
  }
  return host;
}

PythonFacts ProbePython(const std::string& path, absl::Duration limit) {
  PythonFacts python;
  if (!path.empty()) {
    // -P: without the working folder, where a file torch.py may be.
    const auto answer = ToolOutput({path, "-P", "-c", kPythonQuestion}, limit);
    const auto again = answer.ok() || absl::IsDeadlineExceeded(answer.status())
                           ? answer
                           : ToolOutput({path, "-c", kPythonQuestion}, limit);  // before 3.11
    if (again.ok()) python = ParsePythonAnswer(*again);
    if (!again.ok()) python.why_not = std::string(again.status().message());
  }
  python.path = path;
  return python;
}

std::string ProbeContainer(const std::string& root) {
  if (access((root + "/var/run/secrets/kubernetes.io").c_str(), F_OK) == 0) return "kubernetes";
  if (access((root + "/.dockerenv").c_str(), F_OK) == 0) return "docker";
  if (access((root + "/run/.containerenv").c_str(), F_OK) == 0) return "podman";
  return "";
}

// The least value of a cgroup and all above it; see LeastQuota in cpu_probe.cc.
std::optional<uint64_t> LeastMemory(const std::string& mount, std::string path, const char* file) {
  std::optional<uint64_t> least;
  while (true) {
    const auto limit = ParseMemoryLimit(TextOfFile(absl::StrCat(mount, path, "/", file)));
    if (limit.has_value()) least = std::min(*limit, least.value_or(UINT64_MAX));
    if (path.empty()) return least;
    const size_t slash = path.find_last_of('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

std::optional<ClockFacts> ProbeClock() {
  timex clock{};  // modes 0: nothing is set
  const int state = adjtimex(&clock);
  if (state < 0) return std::nullopt;
  return ClockFacts{.synchronised = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0,
                    .error_ms = static_cast<double>(clock.maxerror) / 1e3};
}

std::optional<uint64_t> CgroupMemoryLimit(const std::string& root) {
  std::optional<uint64_t> least;
  const std::string mounts = root + "/sys/fs/cgroup";
  const std::string groups = TextOfFile(root + "/proc/self/cgroup");
  for (const absl::string_view line : absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    std::optional<uint64_t> limit;
    if (fields[1].empty()) limit = LeastMemory(mounts, fields[2], "memory.max");
    if (fields[1] == "memory") {
      limit = LeastMemory(mounts + "/memory", fields[2], "memory.limit_in_bytes");
    }
    if (limit.has_value()) least = std::min(*limit, least.value_or(UINT64_MAX));
  }
  return least;
}

MachineFacts ProbeMachine(const MachineQuestion& question) {
  const std::string& root = question.root;
  MachineFacts facts;
  facts.versions = {.system = ParseSystemName(TextOfFile(root + "/etc/os-release")),
                    .kernel = FirstLine(root + "/proc/sys/kernel/osrelease"),
                    .glibc = gnu_get_libc_version()};
  facts.host = ProbeHostname(question.limit);
  facts.container = ProbeContainer(root);
  auto gpus = Within<GpuInventory>(question.limit,
                                   [root]() -> GpuInventory { return TakeGpuInventory(root); });
  if (gpus.has_value()) {
    facts.driver = std::move(gpus->driver);
    facts.gpus = std::move(gpus->gpus);
  } else {
    facts.driver.gpus_of_kernel = CudaDeviceCount(nullptr, root);
    facts.driver.why_not = NoAnswer("the driver", question.limit);
  }
  facts.cpu = ProbeCpus(root);
  facts.memory = ParseMemInfo(TextOfFile(root + "/proc/meminfo"));
  facts.memory.cgroup_limit = CgroupMemoryLimit(root);
  facts.shared_memory = ProbeSharedMemory(root);
  facts.limits = ParseLimits(TextOfFile(root + "/proc/self/limits"));
  facts.interfaces = ProbeInterfaces(root);
  facts.rdma_ports = ProbeRdmaPorts(root);
  facts.clock = ProbeClock();
  facts.why_no_pidfds = std::string(OpenPidfd(getpid(), "this process").status().message());
  facts.python = ProbePython(question.python, question.limit);
  facts.imports = ProbeImports(question.warm);
  return facts;
}

std::vector<ImportFacts> ProbeImports(const std::string& folder) {
  std::vector<ImportFacts> scripts;
  if (folder.empty()) return scripts;
  for (const std::string& name : NamesIn(folder)) {
    const absl::StatusOr<Learned> learned =
        ParseLearned(TextOfFile(absl::StrCat(folder, "/", name)));
    if (!learned.ok()) continue;
    ImportFacts script;
    script.script = Shown(name.substr(0, name.rfind('-')), 80);
    for (const Learned::Refusal& refusal : learned->refused) {
      script.modules.push_back({.name = refusal.module, .why = Shown(refusal.why, 200)});
    }
    for (const Learned::Slow& slow : learned->slow) {
      script.modules.push_back({.name = slow.module, .milliseconds = slow.milliseconds});
    }
    if (!script.modules.empty()) scripts.push_back(std::move(script));
  }
  return scripts;
}

}  // namespace ddprun::launcher
