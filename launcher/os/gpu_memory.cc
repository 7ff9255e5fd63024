#include "launcher/os/gpu_memory.h"

#include <dlfcn.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// From nvml.h, whose functions all return 0 for success.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
// No GPU runs as many at once; bounds what a wrong answer could ask for.
constexpr unsigned int kProcessesMax = 65536;

absl::Status NvmlStatus(int result, const char* call) {
  if (result == kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " failed with NVML's error ", result));
}

}  // namespace

struct GpuMemory::Library {
  using Device = void*;
  struct ProcessInfo {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v2 and _v3
    unsigned int pid;
    unsigned long long used_memory;  // NOLINT(google-runtime-int): the library's type
    unsigned int gpu_instance;
    unsigned int compute_instance;
  };

  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
  // Finds the first of `names` that the library has.
  template <typename Function>
  bool Find(Function* function, std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      *function = reinterpret_cast<Function>(dlsym(handle, name));
      if (*function != nullptr) return true;
    }
    return false;
  }

  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*device)(unsigned int, Device*) = nullptr;
  int (*processes)(Device, unsigned int*, ProcessInfo*) = nullptr;
};

GpuMemory::GpuMemory(std::unique_ptr<Library> library) : library_(std::move(library)) {}

GpuMemory::~GpuMemory() {
  if (initialized_) library_->shutdown();
}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Load() {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) return absl::NotFoundError("there is no libnvidia-ml.so.1");
  const bool whole =
      library->Find(&library->init, {"nvmlInit_v2"}) &&
      library->Find(&library->shutdown, {"nvmlShutdown"}) &&
      library->Find(&library->count, {"nvmlDeviceGetCount_v2"}) &&
      library->Find(&library->device, {"nvmlDeviceGetHandleByIndex_v2"}) &&
      library->Find(&library->processes, {"nvmlDeviceGetComputeRunningProcesses_v3",
                                          "nvmlDeviceGetComputeRunningProcesses_v2"});
  if (!whole) return absl::NotFoundError("libnvidia-ml.so.1 is too old (before driver 450)");
  return std::unique_ptr<GpuMemory>(new GpuMemory(std::move(library)));
}

absl::StatusOr<std::set<pid_t>> GpuMemory::Holders() {
  if (!initialized_) DDPRUN_RETURN_IF_ERROR(NvmlStatus(library_->init(), "nvmlInit"));
  initialized_ = true;
  unsigned int devices = 0;
  DDPRUN_RETURN_IF_ERROR(NvmlStatus(library_->count(&devices), "nvmlDeviceGetCount"));
  std::set<pid_t> holders;
  for (unsigned int i = 0; i < devices; ++i) {
    Library::Device device = nullptr;
    DDPRUN_RETURN_IF_ERROR(NvmlStatus(library_->device(i, &device), "nvmlDeviceGetHandleByIndex"));
    std::vector<Library::ProcessInfo> processes(64);
    auto count = static_cast<unsigned int>(processes.size());
    int result = library_->processes(device, &count, processes.data());
    if (result == kInsufficientSize && count <= kProcessesMax / 2) {
      processes.resize(size_t{count} * 2);  // some may come meanwhile
      count = static_cast<unsigned int>(processes.size());
      result = library_->processes(device, &count, processes.data());
    }
    DDPRUN_RETURN_IF_ERROR(NvmlStatus(result, "nvmlDeviceGetComputeRunningProcesses"));
    for (size_t at = 0; at < count && at < processes.size(); ++at) {
      holders.insert(static_cast<pid_t>(processes[at].pid));
    }
  }
  return holders;
}

}  // namespace ddprun::launcher
