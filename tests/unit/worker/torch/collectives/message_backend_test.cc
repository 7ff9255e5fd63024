#include "worker/torch/collectives/process_group.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker::message_backend_test {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

// Two ranks of one process, over loopback.
class MessageBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    // The two ranks connect at once. GroupAbort allows one connect at a time in a process, so one
    // rank has none.
    auto other = std::async(std::launch::async, [&] { return Connect(store, 1, nullptr); });
    ours_ = Connect(store, 0, abort_);
    theirs_ = other.get();
  }
  static Backend Connect(const c10::intrusive_ptr<c10d::Store>& store, uint32_t rank,
                         const std::shared_ptr<GroupAbort>& abort) {
    return *CreateMessageGroup(store, {.rank = rank,
                                       .world_size = 2,
                                       .bind_address = "127.0.0.1",
                                       .start_timeout = absl::Seconds(30),
                                       .collective_timeout = absl::Seconds(30),
                                       .abort = abort});
  }

  const std::shared_ptr<GroupAbort> abort_ = std::make_shared<GroupAbort>();
  Backend ours_;
  Backend theirs_;
};

TEST_F(MessageBackendTest, MessagesArrive) {
  std::vector<at::Tensor> sent = {at::ones({1000})};
  std::vector<at::Tensor> received = {at::zeros({1000})};
  const auto send = ours_->send(sent, 1, 0);
  const auto receive = theirs_->recv(received, 0, 0);
  EXPECT_TRUE(send->wait());
  EXPECT_TRUE(receive->wait());
  EXPECT_TRUE(received[0].equal(sent[0]));
}

// The peer has asked for the message and reads no more: most of it is on its way for good.
TEST_F(MessageBackendTest, AnAbortEndsWhatIsUnderWay) {
  std::vector<at::Tensor> sent = {at::ones({64 << 20}, at::kByte)};
  std::vector<at::Tensor> received = {at::zeros({64 << 20}, at::kByte)};
  theirs_->recv(received, 0, 0);  // and is forgotten
  const auto send = ours_->send(sent, 1, 0);
  abort_->Abort();
  EXPECT_FALSE(send->wait());
  // A later receive ends, too, whether Gloo has noticed the abort or not.
  const auto answer = CatchExceptions([&]() -> absl::Status {
    std::vector<at::Tensor> next = {at::zeros({1})};
    if (ours_->recv(next, 1, 0)->wait()) return absl::OkStatus();
    return absl::UnavailableError("given up");
  });
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable) << answer;
}

}  // namespace
}  // namespace ddprun::worker::message_backend_test
