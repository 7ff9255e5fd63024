#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/torch/collectives/nccl_plugin.h"

namespace ddprun::worker {
namespace {

absl::Status LoadError(const char* library) {
  const char* reason = dlerror();
  return absl::FailedPreconditionError(absl::StrCat(
      "the NCCL backend can't be loaded from '", library, "': ", reason != nullptr ? reason : "?",
      "; it is built where the CUDA toolkit and nccl.h are found at configure time; use the "
      "backend "
      "'gloo', or name the library in DDPRUN_NCCL_PLUGIN"));
}

}  // namespace

bool MachineHasGpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && (*visible == '\0' || std::string(visible) == "-1")) return false;
  return access("/dev/nvidiactl", F_OK) == 0;
}

void LeaveNcclErrorsAlone() {
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 1);
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 1);
  setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0", 1);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 1);
}

// In the process that workers are forked from (worker/env/parked_program.h): CUDA's libraries take
// a quarter of a second, which each new worker would pay.
extern "C" void ddprun_load_ahead() {
  if (MachineHasGpus()) LoadNcclPlugin().IgnoreError();  // reported when NCCL is needed
}

absl::StatusOr<NcclPlugin> LoadNcclPlugin() {
  const char* named = std::getenv("DDPRUN_NCCL_PLUGIN");
  const char* library = named != nullptr && *named != '\0' ? named : kNcclPluginLibrary;
  // Global, because libtorch_cuda registers its kernels for the whole process.
  void* handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) return LoadError(library);
  NcclPlugin plugin;
  plugin.create_backend =
      reinterpret_cast<decltype(plugin.create_backend)>(dlsym(handle, kNcclCreateBackendSymbol));
  plugin.device_count =
      reinterpret_cast<decltype(plugin.device_count)>(dlsym(handle, kNcclDeviceCountSymbol));
  if (plugin.create_backend == nullptr || plugin.device_count == nullptr) return LoadError(library);
  return plugin;
}

}  // namespace ddprun::worker
