#include "worker/torch/collectives/hierarchical_backend.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "worker/torch/collectives/collective_queue.h"
#include "worker/torch/collectives/process_group.h"

namespace ddprun::worker {
namespace {

using std::chrono_literals::operator""s;

// Stands for Gloo with silent peers: it waits for what may still come, and keeps the tensors to
// write it to.
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

// What three hosts of one rank each do over Gloo, by rank.
template <typename Result>
std::vector<Result> OnThreeHosts(const std::function<Result(c10d::Backend&, int64_t rank)>& run) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<Result>> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&run, &store, rank] {
      const auto gloo = *CreateProcessGroup(store, {.backend = BackendKind::kGloo,
                                                    .rank = rank,
                                                    .world_size = 3,
                                                    .bind_address = "127.0.0.1",
                                                    .start_timeout = absl::Seconds(30),
                                                    .collective_timeout = absl::Seconds(30)});
      c10d::HashStore own;
      const auto backend = c10::make_intrusive<HierarchicalBackend>(
          rank, HostLayout{.hosts = {{0}, {1}, {2}}}, *ShmGroup::Create(own, 0, {rank}),
          gloo->getDefaultBackend(), 30s, nullptr);
      return run(*backend, rank);
    }));
  }
  std::vector<Result> results;
  for (auto& rank : ranks) results.push_back(rank.get());
  return results;
}

// 1e8 + 1 is 1e8 in float: around a ring each third would begin at another host, and lose it.
TEST(HierarchicalBackendTest, SmallSumsAreInTheHostsOrder) {
  const auto sums = OnThreeHosts<at::Tensor>([](c10d::Backend& backend, int64_t rank) {
    const float mine = rank == 2 ? 1.0F : rank == 1 ? -1e8F : 1e8F;
    std::vector<at::Tensor> tensors = {at::full({300}, mine, at::kFloat)};
    backend.allreduce(tensors)->wait();
    return tensors[0];
  });
  for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(at::ones({300}))) << sum;
}

TEST(HierarchicalBackendTest, WhatIsLargeGoesAroundTheRing) {
  const auto equal = OnThreeHosts<bool>([](c10d::Backend& backend, int64_t rank) {
    bool all = true;
    for (const int64_t numbers : {int64_t{1}, int64_t{5461}, int64_t{5462}, int64_t{100'000}}) {
      std::vector<at::Tensor> sum = {at::full({numbers}, rank, at::kInt)};
      backend.allreduce(sum)->wait();
      std::vector<at::Tensor> mine = {at::full({numbers}, rank, at::kInt)};
      std::vector<std::vector<at::Tensor>> parts = {
          {at::empty_like(mine[0]), at::empty_like(mine[0]), at::empty_like(mine[0])}};
      backend.allgather(parts, mine)->wait();
      all = all && sum[0].equal(at::full({numbers}, 3, at::kInt));
      for (int64_t other = 0; other < 3; ++other) {
        all = all && parts[0][other].equal(at::full({numbers}, other, at::kInt));
      }
    }
    return all;
  });
  EXPECT_EQ(equal, std::vector<bool>(3, true));
}

}  // namespace
}  // namespace ddprun::worker
