#include "launcher/os/gpu_memory.h"

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
  for (NvmlLibrary::Device device : devices) {
    DDPRUN_ASSIGN_OR_RETURN(const auto processes, library_.Processes(device));
    for (const auto& process : processes) holders.insert(static_cast<pid_t>(process.pid));
  }
  return holders;
}

}  // namespace ddprun::launcher
