#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_NCCL_PLUGIN_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_NCCL_PLUGIN_H_

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"

// NCCL lives in a plug-in library, libddprun_nccl.so: linking it would load 1 GB of CUDA libraries
// into every CPU worker.
namespace ddprun::worker {

struct NcclPluginArguments {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  int world_size;
  int device_index;  // becomes the calling thread's current GPU
  std::chrono::milliseconds timeout;
};

// The plug-in's functions; both throw as LibTorch does.
struct NcclPlugin {
  void (*create_backend)(const NcclPluginArguments& arguments,
                         c10::intrusive_ptr<c10d::Backend>* backend) = nullptr;
  int (*device_count)() = nullptr;
};

// The names under which the plug-in exports them.
inline constexpr const char* kNcclPluginLibrary = "libddprun_nccl.so";
inline constexpr const char* kNcclCreateBackendSymbol = "ddprun_nccl_create_backend";
inline constexpr const char* kNcclDeviceCountSymbol = "ddprun_nccl_device_count";

// True when this machine has NVIDIA GPUs and CUDA_VISIBLE_DEVICES hides not all of them.
bool MachineHasGpus();

// For a process that outlives its groups: LibTorch does nothing by itself about their errors and
// hangs. It would end the process; and after a peer's death its watchdog sleeps for a minute, in
// which others may write dumps, and its monitor, once it has seen somebody's signal to, for the
// eight minutes of a heartbeat, and a group can't be destroyed before they end. ddprun notices
// hangs, too. Sets variables: before there are threads that may read them. Source: those of
// ProcessGroupNCCL.hpp, and how LibTorch 2.11 behaves.
void LeaveNcclErrorsAlone();

// Loads the plug-in: the file DDPRUN_NCCL_PLUGIN names, else by the program's search path. It stays
// loaded. Errors: FAILED_PRECONDITION — it can't be loaded; the text says what to do.
absl::StatusOr<NcclPlugin> LoadNcclPlugin();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_NCCL_PLUGIN_H_
