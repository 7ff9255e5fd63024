#ifndef DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_
#define DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_

#include <sys/types.h>

#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "launcher/machine/nvml_library.h"

namespace ddprun::launcher {

// Who holds memory of this machine's NVIDIA GPUs, as the driver's library says (NVML,
// libnvidia-ml.so.1, loaded when it is wanted). The driver may give the memory of a process back
// after wait(2) told of its end: late by tens of milliseconds usually, by seconds after an Xid
// error or with persistence mode off.
// Threads: any, one at a time.
// Source: NVML API reference, nvmlDeviceGetComputeRunningProcesses.
class GpuMemory {
 public:
  // Loads the library; asks nothing yet. Errors: NOT_FOUND — there is none, or it is too old.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Load();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // The processes, by the pids that the driver knows: those of the machine, which in a container
  // with pids of its own are other ones. Waits for the driver: milliseconds, the first time tens of
  // them, for ever when a GPU is ill. Errors: INTERNAL — the driver can't be asked, with NVML's
  // number for why.
  absl::StatusOr<std::set<pid_t>> Holders();

 private:
  explicit GpuMemory(NvmlLibrary library);
  NvmlLibrary library_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_
