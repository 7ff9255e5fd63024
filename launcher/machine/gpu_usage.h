#ifndef DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_
#define DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/machine/nvml_library.h"
#include "rendezvous/core/node_info.h"

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

// Utilization and memory of this machine's NVIDIA GPUs, from the driver's library (NVML).
// Threads: any, one at a time.
// Source: NVML API reference, nvmlDeviceGetUtilizationRates and nvmlDeviceGetMemoryInfo.
class GpuUsage {
 public:
  // Loads the library without a query. `visible`: CUDA_VISIBLE_DEVICES, nullopt = it isn't set.
  // Errors: NOT_FOUND — there is no library, or it is too old.
  static absl::StatusOr<std::unique_ptr<GpuUsage>> Load(std::optional<std::string> visible);

  // The visible GPUs, in CUDA's order, at most kGpusMax, including those that the driver has lost,
  // but without those that don't report their memory. Waits for the driver: milliseconds, the first
  // time tens of them, forever if a GPU is broken. Errors: INTERNAL — the query fails, with NVML's
  // error number; NOT_FOUND — no GPU is visible. No errors once GPUs were found.
  absl::StatusOr<std::vector<rendezvous::GpuUse>> Look();

 private:
  GpuUsage(NvmlLibrary library, std::optional<std::string> visible)
      : library_(std::move(library)), visible_(std::move(visible)) {}
  absl::Status FindDevices();

  NvmlLibrary library_;
  std::optional<std::string> visible_;
  bool found_ = false;
  // The visible GPUs; nullopt = the driver had lost the GPU before the first query.
  std::vector<std::pair<size_t, std::optional<NvmlLibrary::Device>>> devices_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_
