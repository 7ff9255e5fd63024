#include "tools/doctor/gpu_inventory.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "launcher/machine/nvml_library.h"
#include "tools/doctor/core/machine_parsers.h"
#include "tools/doctor/text_file.h"

namespace ddprun::launcher {
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

}  // namespace ddprun::launcher
