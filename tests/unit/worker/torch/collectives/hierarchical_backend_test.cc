#include "worker/torch/collectives/hierarchical_backend.h"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "worker/torch/collectives/collective_work.h"

namespace ddprun::worker {
namespace {

using std::chrono_literals::operator""s;

// Gloo, whose peers say nothing any more: it waits for what may still come, and keeps where to.
class SilentBackend : public c10d::Backend {
 public:
  SilentBackend() : c10d::Backend(/*rank=*/0, /*size=*/2) {}

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& /*options*/) override {
    kept = tensors;
    called.set_value();
    return c10::make_intrusive<CollectiveWork>(0, c10d::OpType::BROADCAST, tensors);
  }

  std::vector<at::Tensor> kept;
  std::promise<void> called;
};

TEST(HierarchicalBackendTest, AnAbandonedBroadcastKeepsTheMemoryThatItMayWriteTo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  absl::StatusOr<std::unique_ptr<ShmGroup>> local = ShmGroup::Create(*store, 0, {0});
  ASSERT_TRUE(local.ok()) << local.status();
  const auto leaders = c10::make_intrusive<SilentBackend>();
  auto backend = c10::make_intrusive<HierarchicalBackend>(
      0, HostLayout{.hosts = {{0}, {1}}}, *std::move(local), leaders, 60s,
      [](const c10::intrusive_ptr<c10d::Backend>& /*leaders*/) {});
  std::array<char, 64> memory = {};
  bool freed = false;
  {
    std::vector<at::Tensor> tensors = {at::from_blob(
        memory.data(), {static_cast<int64_t>(memory.size())}, [&freed](void*) { freed = true; },
        at::kByte)};
    const auto work = backend->broadcast(tensors, {});
    leaders->called.get_future().wait();
    backend->abort();
    EXPECT_ANY_THROW(work->wait());
  }
  backend.reset();
  EXPECT_FALSE(freed);
  leaders->kept.clear();
  EXPECT_TRUE(freed);
}

}  // namespace
}  // namespace ddprun::worker
