// The plug-in library itself; the only file that sees CUDA and NCCL.
#include "worker/torch/collectives/nccl_plugin.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

namespace ddprun::worker {

using c10d::ProcessGroupNCCL;

extern "C" int ddprun_nccl_device_count() { return c10::cuda::device_count(); }

// Connects at once, so that a peer that is missing is an error here and not in the first step.
extern "C" void ddprun_nccl_create_backend(const NcclPluginArguments& arguments,
                                           c10::intrusive_ptr<c10d::Backend>* backend) {
  const auto index = static_cast<c10::DeviceIndex>(arguments.device_index);
  c10::cuda::set_device(index);
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = arguments.timeout;
  options->group_name = "ddprun";
  auto nccl = c10::make_intrusive<ProcessGroupNCCL>(arguments.store, arguments.rank,
                                                    arguments.world_size, options);
  const at::Device device(at::kCUDA, index);
  nccl->setBoundDeviceId(device);
  nccl->eagerConnectSingleDevice(device);
  *backend = std::move(nccl);
}

}  // namespace ddprun::worker
