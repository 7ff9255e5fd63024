#include "worker/torch/collectives/collective_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

namespace ddprun::worker {
namespace {

c10::intrusive_ptr<CollectiveWork> NewWork() {
  return c10::make_intrusive<CollectiveWork>(0, c10d::OpType::BARRIER, std::vector<at::Tensor>());
}

TEST(CollectiveQueueTest, HoldsNothingOfATaskWhoseWorkHasEnded) {
  CollectiveQueue queue;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watch = held;
  bool was_held_at_the_end = true;
  auto work = NewWork();
  std::promise<void> told;
  work->getFuture()->addCallback([&](c10::ivalue::Future&) {
    was_held_at_the_end = !watch.expired();
    told.set_value();
  });
  queue.Submit({.work = work, .run = [held = std::move(held)] {}});
  told.get_future().wait();
  EXPECT_FALSE(was_held_at_the_end);
}

TEST(CollectiveQueueTest, HoldsNothingOfATaskThatItsSubmitterFinished) {
  CollectiveQueue queue;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watch = held;
  bool was_held_at_the_end = true;
  auto work = NewWork();
  work->getFuture()->addCallback(
      [&](c10::ivalue::Future&) { was_held_at_the_end = !watch.expired(); });
  queue.Submit({.work = work, .attempt = [held = std::move(held)] { return true; }, .run = [] {}});
  EXPECT_TRUE(work->isCompleted());
  EXPECT_FALSE(was_held_at_the_end);
}

}  // namespace
}  // namespace ddprun::worker
