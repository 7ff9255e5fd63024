#include "launcher/machine/nvml_library.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// Far more processes than one GPU runs. Bounds the memory that a wrong answer could request.
constexpr unsigned int kProcessesMax = 65536;

}  // namespace

absl::Status NvmlLibrary::ToStatus(int result, const char* call) {
  if (result == kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(call, " failed with NVML's error ", result);
  if (result == kGpuIsLost) {
    return absl::UnavailableError(text + ": it is lost to the driver");
  }
  if (result != kVersionMismatch) return absl::InternalError(text);
  return absl::FailedPreconditionError(
      absl::StrCat(text, ": the library is of another version than the loaded driver"));
}

absl::StatusOr<NvmlLibrary> NvmlLibrary::Load() {
  NvmlLibrary library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library.handle_ == nullptr) return absl::NotFoundError("there is no libnvidia-ml.so.1");
  library.init_ = library.Find<decltype(init_)>({"nvmlInit_v2"});
  library.shutdown_ = library.Find<decltype(shutdown_)>({"nvmlShutdown"});
  library.count_ = library.Find<decltype(count_)>({"nvmlDeviceGetCount_v2"});
  library.device_ = library.Find<decltype(device_)>({"nvmlDeviceGetHandleByIndex_v2"});
  library.processes_ = library.Find<decltype(processes_)>(
      {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  if (library.init_ == nullptr || library.shutdown_ == nullptr || library.count_ == nullptr ||
      library.device_ == nullptr || library.processes_ == nullptr) {
    return absl::NotFoundError("libnvidia-ml.so.1 is too old (before driver 450)");
  }
  return library;
}

NvmlLibrary::NvmlLibrary(NvmlLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      initialized_(std::exchange(other.initialized_, false)),
      init_(other.init_),
      shutdown_(other.shutdown_),
      count_(other.count_),
      device_(other.device_),
      processes_(other.processes_) {}

NvmlLibrary::~NvmlLibrary() {
  if (initialized_) shutdown_();
  if (handle_ != nullptr) dlclose(handle_);
}

absl::Status NvmlLibrary::Init() {
  if (initialized_) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(ToStatus(init_(), "nvmlInit"));
  initialized_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::StatusOr<NvmlLibrary::Device>>> NvmlLibrary::Devices() const {
  unsigned int count = 0;
  DDPRUN_RETURN_IF_ERROR(ToStatus(count_(&count), "nvmlDeviceGetCount"));
  std::vector<absl::StatusOr<Device>> devices;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    const absl::Status found = ToStatus(device_(i, &device), "nvmlDeviceGetHandleByIndex");
    found.ok() ? devices.emplace_back(device) : devices.emplace_back(found);
  }
  return devices;
}

absl::StatusOr<std::vector<NvmlLibrary::ProcessInfo>> NvmlLibrary::Processes(Device device) const {
  std::vector<ProcessInfo> processes(64);
  auto count = static_cast<unsigned int>(processes.size());
  int result = processes_(device, &count, processes.data());
  if (result == kInsufficientSize && count <= kProcessesMax / 2) {
    processes.resize(size_t{count} * 2);  // some may come meanwhile
    count = static_cast<unsigned int>(processes.size());
    result = processes_(device, &count, processes.data());
  }
  DDPRUN_RETURN_IF_ERROR(ToStatus(result, "nvmlDeviceGetComputeRunningProcesses"));
  if (count < processes.size()) processes.resize(count);
  return processes;
}

}  // namespace ddprun::launcher
