#include "worker/torch/collectives/group_abort.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/check.h"
#include "base/fd.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

// Two ends of a TCP connection over loopback.
struct Connection {
  Fd ours;
  Fd theirs;

  static Connection Make() {
    Fd listener(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    DDPRUN_CHECK(bind(listener.get(), plain, size) == 0, "bind");
    DDPRUN_CHECK(listen(listener.get(), 1) == 0, "listen");
    DDPRUN_CHECK(getsockname(listener.get(), plain, &size) == 0, "getsockname");
    Connection made;
    made.ours.Reset(socket(AF_INET, SOCK_STREAM, 0));
    DDPRUN_CHECK(connect(made.ours.get(), plain, size) == 0, "connect");
    made.theirs.Reset(accept(listener.get(), nullptr, nullptr));
    return made;
  }
};

// Whether the other end has been shut down; waits for it or for data.
bool IsShutDown(const Fd& fd) {
  std::array<char, 1> byte = {};
  return recv(fd.get(), byte.data(), byte.size(), 0) == 0;
}

TEST(GroupAbortTest, SocketsOfAConnectAreShutDownAndNoOthers) {
  const Connection before = Connection::Make();
  Connection during;
  GroupAbort abort;
  abort.Connect([&] { during = Connection::Make(); });
  const Connection after = Connection::Make();
  abort.Abort();
  EXPECT_TRUE(IsShutDown(during.theirs));
  for (const Connection* other : {&before, &after}) {
    ASSERT_EQ(send(other->ours.get(), "x", 1, 0), 1);
    EXPECT_FALSE(IsShutDown(other->theirs));
  }
}

// Gloo closes its own descriptor after an error; the copy must not keep the peer waiting.
TEST(GroupAbortTest, ItsEndShutsThemDownToo) {
  Connection during;
  auto abort = std::make_unique<GroupAbort>();
  abort->Connect([&] { during = Connection::Make(); });
  during.ours.Reset();
  abort.reset();
  EXPECT_TRUE(IsShutDown(during.theirs));
}

TEST(GroupAbortTest, WhatConnectsForTooLongIsLeftToItself) {
  std::promise<void> begun;
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<bool>(false);
  GroupAbort abort;
  std::thread aborter([&] {
    begun.get_future().wait();
    abort.Abort();
  });
  EXPECT_THROW(abort.Connect([&begun, release, ended] {
    begun.set_value();
    release->get_future().wait();
    *ended = true;
  }),
               PeerFailure);
  aborter.join();
  EXPECT_FALSE(*ended);
  release->set_value();
  GroupAbort::JoinAbandoned();
  EXPECT_TRUE(*ended);
}

TEST(GroupAbortTest, AnAbortThatCameBeforeEndsTheConnect) {
  auto release = std::make_shared<std::promise<void>>();
  GroupAbort abort;
  abort.Abort();
  EXPECT_THROW(abort.Connect([release] { release->get_future().wait(); }), PeerFailure);
  release->set_value();
  GroupAbort::JoinAbandoned();
}

// As one of Gloo's of which a collective waits for bytes that Gloo has forgotten.
class StuckBackend : public c10d::Backend {
 public:
  explicit StuckBackend(std::shared_future<void> released)
      : Backend(0, 1), released_(std::move(released)) {}
  ~StuckBackend() override { released_.wait(); }

 private:
  const std::shared_future<void> released_;
};

TEST(GroupAbortTest, AGroupThatDoesNotEndIsLeft) {
  std::promise<void> release;
  std::promise<void> others_release;
  const at::Tensor memory = at::zeros({1});
  GroupAbort::DestroyBeside(c10::make_intrusive<StuckBackend>(release.get_future().share()),
                            memory);
  GroupAbort::DestroyBeside(c10::make_intrusive<StuckBackend>(others_release.get_future().share()));
  others_release.set_value();
  GroupAbort::JoinAbandoned(absl::Milliseconds(20));
  EXPECT_EQ(memory.use_count(), 2U) << "of who isn't destroyed yet";
  GroupAbort::JoinAbandoned();  // no longer one of those that are waited for
  release.set_value();
}

TEST(GroupAbortTest, WhatAConnectThrowsIsThrown) {
  GroupAbort abort;
  EXPECT_THROW(abort.Connect([] { throw std::out_of_range("no such peer"); }), std::out_of_range);
}

}  // namespace
}  // namespace ddprun::worker
