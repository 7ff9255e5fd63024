#include "launcher/machine/gpu_usage.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "launcher/core/visible_gpus.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

GpuMemory::GpuMemory(NvmlLibrary library) : library_(std::move(library)) {}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Load() {
  DDPRUN_ASSIGN_OR_RETURN(NvmlLibrary library, NvmlLibrary::Load());
  return std::unique_ptr<GpuMemory>(new GpuMemory(std::move(library)));
}

absl::StatusOr<std::set<pid_t>> GpuMemory::Holders() {
  DDPRUN_RETURN_IF_ERROR(library_.Init());
  std::set<pid_t> holders;
  DDPRUN_ASSIGN_OR_RETURN(const auto devices, library_.Devices());
  for (const absl::StatusOr<NvmlLibrary::Device>& device : devices) {
    if (!device.ok()) continue;  // lost, or not ours
    const auto processes = library_.Processes(*device);
    if (absl::IsUnavailable(processes.status())) continue;  // lost since
    DDPRUN_RETURN_IF_ERROR(processes.status());
    for (const auto& process : *processes) holders.insert(static_cast<pid_t>(process.pid));
  }
  return holders;
}

namespace {

using Device = NvmlLibrary::Device;

struct UsedMemory {          // nvmlMemory_t
  unsigned long long total;  // NOLINT(google-runtime-int): the library's type
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};
struct UtilizationRates {  // nvmlUtilization_t, percent
  unsigned int gpu;
  unsigned int memory;
};
constexpr unsigned int kWholePercent = 100;
constexpr int kNotAsked = -1;
constexpr size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

std::string UuidOf(const NvmlLibrary& library, Device device) {
  using Ask = int (*)(Device, char*, unsigned int);
  const auto ask = library.Find<Ask>({"nvmlDeviceGetUUID"});
  std::array<char, kUuidBytes> text{};
  if (ask == nullptr || ask(device, text.data(), text.size() - 1) != NvmlLibrary::kSuccess) {
    return "";
  }
  return text.data();
}

rendezvous::GpuUse LostGpu(size_t index) {
  return {.index = static_cast<uint32_t>(index), .utilization = std::nullopt, .lost = true};
}

std::optional<rendezvous::GpuUse> UseOf(const NvmlLibrary& library, size_t index, Device device) {
  using AskMemory = int (*)(Device, UsedMemory*);
  using AskRates = int (*)(Device, UtilizationRates*);
  const auto ask_memory = library.Find<AskMemory>({"nvmlDeviceGetMemoryInfo"});
  UsedMemory memory{};
  const int result = ask_memory == nullptr ? kNotAsked : ask_memory(device, &memory);
  if (result == NvmlLibrary::kGpuIsLost) return LostGpu(index);
  if (result != NvmlLibrary::kSuccess) return std::nullopt;
  rendezvous::GpuUse use{.index = static_cast<uint32_t>(index),
                         .utilization = std::nullopt,
                         .memory_used = memory.used,
                         .memory_total = memory.total};
  const auto ask_rates = library.Find<AskRates>({"nvmlDeviceGetUtilizationRates"});
  UtilizationRates rates{};
  if (ask_rates != nullptr && ask_rates(device, &rates) == NvmlLibrary::kSuccess) {
    use.utilization = std::min(rates.gpu, kWholePercent);
  }
  return use;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuUsage>> GpuUsage::Load(std::optional<std::string> visible) {
  DDPRUN_ASSIGN_OR_RETURN(NvmlLibrary library, NvmlLibrary::Load());
  return std::unique_ptr<GpuUsage>(new GpuUsage(std::move(library), std::move(visible)));
}

absl::Status GpuUsage::FindDevices() {
  if (found_) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(library_.Init());
  DDPRUN_ASSIGN_OR_RETURN(const auto devices, library_.Devices());
  std::vector<std::string> uuids;
  uuids.reserve(devices.size());
  for (const absl::StatusOr<Device>& device : devices) {
    uuids.push_back(device.ok() ? UuidOf(library_, *device) : "");
  }
  std::set<size_t> seen;  // a list may name one twice
  for (const size_t index : VisibleGpus(uuids, visible_)) {
    if (seen.size() == rendezvous::kGpusMax || !seen.insert(index).second) continue;
    if (devices[index].ok()) devices_.emplace_back(index, *devices[index]);
    if (absl::IsUnavailable(devices[index].status())) devices_.emplace_back(index, std::nullopt);
  }
  found_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<rendezvous::GpuUse>> GpuUsage::Look() {
  DDPRUN_RETURN_IF_ERROR(FindDevices());
  if (devices_.empty()) return absl::NotFoundError("no NVIDIA GPU is visible");
  std::vector<rendezvous::GpuUse> uses;
  for (const auto& [index, device] : devices_) {
    const auto use = device.has_value() ? UseOf(library_, index, *device) : LostGpu(index);
    if (use.has_value()) uses.push_back(*use);
  }
  return uses;
}

}  // namespace ddprun::launcher
