#ifndef DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_
#define DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_

#include <sys/types.h>

#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "launcher/machine/nvml_library.h"

namespace ddprun::launcher {

// The processes that hold memory of this machine's NVIDIA GPUs, from the driver's library (NVML,
// libnvidia-ml.so.1, loaded on demand). The driver may free the memory of a process only after
// wait(2) has reported its end: usually tens of milliseconds later, seconds after an Xid error or
// with persistence mode off. Threads: any, one at a time. Source: NVML API reference,
// nvmlDeviceGetComputeRunningProcesses.
class GpuMemory {
 public:
  // Loads the library without a query. Errors: NOT_FOUND — there is none, or it is too old.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Load();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // The processes, by the machine's pids, which differ from ours in a container with a PID
  // namespace. Waits for the driver: milliseconds, the first time tens of them, forever if a GPU is
  // broken. Errors: INTERNAL — the query fails, with NVML's error number.
  absl::StatusOr<std::set<pid_t>> Holders();

 private:
  explicit GpuMemory(NvmlLibrary library);
  NvmlLibrary library_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_GPU_MEMORY_H_
