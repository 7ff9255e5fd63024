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

// Whether this machine has NVIDIA GPUs that CUDA_VISIBLE_DEVICES doesn't hide.
bool MachineHasGpus();

// Turns off LibTorch's own handling of NCCL's errors and hangs, for a process that outlives its
// groups. LibTorch would end the process. And after a peer's death its watchdog sleeps for a
// minute, in which others may write dumps, and its monitor, once a dump was signaled, for a
// heartbeat of eight minutes; a group can't be destroyed before both end. ddprun detects hangs
// itself. Sets environment variables, so call it before there are threads that may read them.
// Source: the variables of ProcessGroupNCCL.hpp, and the behavior of LibTorch 2.11.
void LeaveNcclErrorsAlone();

// Loads the plug-in, from the file that DDPRUN_NCCL_PLUGIN names, else from the program's search
// path. The library stays loaded. Errors: FAILED_PRECONDITION — it can't be loaded; the text says
// what to do.
absl::StatusOr<NcclPlugin> LoadNcclPlugin();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_NCCL_PLUGIN_H_
