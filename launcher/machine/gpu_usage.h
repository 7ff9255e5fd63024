#ifndef DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_
#define DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/machine/nvml_library.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// How busy and how full this machine's NVIDIA GPUs are, as the driver's library says (NVML).
// Threads: any, one at a time.
// Source: NVML API reference, nvmlDeviceGetUtilizationRates and nvmlDeviceGetMemoryInfo.
class GpuUsage {
 public:
  // Loads the library; asks nothing yet. `visible`: CUDA_VISIBLE_DEVICES, nullopt = it isn't set.
  // Errors: NOT_FOUND — there is no library, or it is too old.
  static absl::StatusOr<std::unique_ptr<GpuUsage>> Load(std::optional<std::string> visible);

  // The GPUs that are visible, in the order in which CUDA numbers them, at most kGpusMax; also
  // those that are lost to the driver, but not those that don't tell their memory. Waits for the
  // driver: milliseconds, the first time tens of them, for ever when a GPU is ill. Errors: INTERNAL
  // — the driver can't be asked, with NVML's number for why; NOT_FOUND — no GPU is visible. Once it
  // has found GPUs there are none.
  absl::StatusOr<std::vector<rendezvous::GpuUse>> Look();

 private:
  GpuUsage(NvmlLibrary library, std::optional<std::string> visible)
      : library_(std::move(library)), visible_(std::move(visible)) {}
  absl::Status FindDevices();

  NvmlLibrary library_;
  std::optional<std::string> visible_;
  bool found_ = false;
  // Those that are visible; nullopt = lost to the driver before it was asked.
  std::vector<std::pair<size_t, std::optional<NvmlLibrary::Device>>> devices_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_GPU_USAGE_H_
