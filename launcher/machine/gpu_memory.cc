#include "launcher/machine/gpu_memory.h"

#include <utility>

#include "base/status_macros.h"

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

}  // namespace ddprun::launcher
