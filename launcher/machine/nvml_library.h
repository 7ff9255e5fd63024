#ifndef DDPRUN_LAUNCHER_MACHINE_NVML_LIBRARY_H_
#define DDPRUN_LAUNCHER_MACHINE_NVML_LIBRARY_H_

#include <dlfcn.h>

#include <initializer_list>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::launcher {

// NVIDIA's management library, libnvidia-ml.so.1, which comes with the driver: loaded on demand,
// its functions found by name. The few types that we use are declared here, so its header isn't
// needed. Threads: any, one at a time. Source: NVML API reference.
class NvmlLibrary {
 public:
  using Device = void*;
  struct ProcessInfo {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v2 and _v3
    unsigned int pid;
    unsigned long long used_memory;  // NOLINT(google-runtime-int): the library's type
    unsigned int gpu_instance;
    unsigned int compute_instance;
  };
  // The functions' results.
  static constexpr int kSuccess = 0;
  static constexpr int kInsufficientSize = 7;
  static constexpr int kGpuIsLost = 15;        // it fell off the bus
  static constexpr int kVersionMismatch = 18;  // the library isn't the loaded driver's

  // Loads the library without a query. Errors: NOT_FOUND — there is none, or it is too old.
  static absl::StatusOr<NvmlLibrary> Load();
  ~NvmlLibrary();
  NvmlLibrary(NvmlLibrary&& other) noexcept;
  NvmlLibrary& operator=(NvmlLibrary&&) = delete;

  // The first of `names` that the library has; null = none.
  template <typename Function>
  Function Find(std::initializer_list<const char*> names) const {
    Function function = nullptr;
    for (const char* name : names) {
      function = reinterpret_cast<Function>(dlsym(handle_, name));
      if (function != nullptr) break;
    }
    return function;
  }

  // Each of these waits for the driver: milliseconds, the first time tens of them, forever if a GPU
  // is broken. Errors: INTERNAL with NVML's error number; UNAVAILABLE for kGpuIsLost,
  // FAILED_PRECONDITION for kVersionMismatch.
  absl::Status Init();  // only the first call has an effect
  // By number; a GPU that doesn't answer has its error.
  absl::StatusOr<std::vector<absl::StatusOr<Device>>> Devices() const;
  // The processes that compute on the GPU.
  absl::StatusOr<std::vector<ProcessInfo>> Processes(Device device) const;

  static absl::Status ToStatus(int result, const char* call);

 private:
  explicit NvmlLibrary(void* handle) : handle_(handle) {}

  void* handle_ = nullptr;
  bool initialized_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*device_)(unsigned int, Device*) = nullptr;
  int (*processes_)(Device, unsigned int*, ProcessInfo*) = nullptr;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_NVML_LIBRARY_H_
