// An NCCL plug-in for tests on machines without a GPU: its first group connects, and no later one,
// because of this rank's own GPU. Nothing can be sent.
#include <c10/core/impl/FakeGuardImpl.h>

#include <stdexcept>
#include <string>

#include "worker/torch/collectives/nccl_plugin.h"

namespace ddprun::worker {
namespace {

C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>)

class FakeNccl : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  void abort() override {}
};

}  // namespace

extern "C" int ddprun_nccl_device_count() { return 1; }

extern "C" void ddprun_nccl_create_backend(const NcclPluginArguments& arguments,
                                           c10::intrusive_ptr<c10d::Backend>* backend) {
  static int made = 0;
  if (made++ > 0) throw std::runtime_error("CUDA error: an illegal instruction was encountered");
  *backend = c10::make_intrusive<FakeNccl>(arguments.rank, arguments.world_size);
}

}  // namespace ddprun::worker
