// The plug-in library itself; the only file that includes CUDA's and NCCL's headers.
#include "worker/torch/collectives/nccl_plugin.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Logging.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

namespace ddprun::worker {

using c10d::ProcessGroupNCCL;

namespace {

// Silences LibTorch's watchdog from the abort of a group to its end: it would write a dozen lines,
// with a stack, for each collective that the abort breaks.
class QuietWatchdogs {
 public:
  QuietWatchdogs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (count_++ == 0) level_before_ = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_FATAL);
  }
  ~QuietWatchdogs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) FLAGS_caffe2_log_level = level_before_;
  }
  QuietWatchdogs(const QuietWatchdogs&) = delete;
  QuietWatchdogs& operator=(const QuietWatchdogs&) = delete;

 private:
  static inline std::mutex mutex_;
  static inline int count_ = 0;
  static inline int level_before_ = 0;
};

class NcclGroup : public ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;
  // Otherwise LibTorch warns that the program has forgotten the shutdown.
  ~NcclGroup() override {
    if (aborted_) return;
    try {
      shutdown();
    } catch (const std::exception& error) {
      TORCH_WARN("NCCL's group doesn't end: ", error.what());
    }
  }

  void abort() override {
    if (aborted_.exchange(true)) return;
    quiet_.emplace();
    ProcessGroupNCCL::abort();
  }
  // The works of an aborted group end without an error, so this reports it.
  c10d::ErrorType getError() override {
    return aborted_ ? c10d::ErrorType::REMOTE_ERROR : ProcessGroupNCCL::getError();
  }

 private:
  std::atomic<bool> aborted_ = false;
  std::optional<QuietWatchdogs> quiet_;
};

}  // namespace

extern "C" int ddprun_nccl_device_count() { return c10::cuda::device_count(); }

// Connects at once, so that a missing peer is an error here, not in the first step.
extern "C" void ddprun_nccl_create_backend(const NcclPluginArguments& arguments,
                                           c10::intrusive_ptr<c10d::Backend>* backend) {
  const auto index = static_cast<c10::DeviceIndex>(arguments.device_index);
  c10::cuda::set_device(index);
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = arguments.timeout;
  options->group_name = "ddprun";
  auto nccl = c10::make_intrusive<NcclGroup>(arguments.store, arguments.rank, arguments.world_size,
                                             options);
  const at::Device device(at::kCUDA, index);
  nccl->setBoundDeviceId(device);
  nccl->eagerConnectSingleDevice(device);
  *backend = std::move(nccl);
}

}  // namespace ddprun::worker
