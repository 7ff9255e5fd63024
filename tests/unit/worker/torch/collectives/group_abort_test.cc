#include "worker/torch/collectives/group_abort.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

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

// Stands for a backend of Gloo's with a collective that waits for bytes which Gloo has forgotten.
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
  EXPECT_EQ(memory.use_count(), 2U) << "of the group that isn't destroyed";
  GroupAbort::JoinAbandoned();  // no longer one of those that are waited for
  release.set_value();
}

// Stands for NCCL's bootstrap, which waits for all ranks to call.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    DDPRUN_CHECK(bind(socket_.get(), plain(), size) == 0, "bind");
    DDPRUN_CHECK(listen(socket_.get(), 1) == 0, "listen");
    DDPRUN_CHECK(getsockname(socket_.get(), plain(), &size) == 0, "getsockname");
  }
  bool Accept() { return Fd(accept(socket_.get(), nullptr, nullptr)).valid(); }
  Fd Call() {
    Fd caller(socket(AF_INET, SOCK_STREAM, 0));
    connect(caller.get(), plain(), sizeof(address_));
    return caller;
  }

 private:
  sockaddr* plain() { return reinterpret_cast<sockaddr*>(&address_); }

  Fd socket_;
  sockaddr_in address_ = {};
};

// Whether an Abort while a group connects, which waits for a caller, ends that wait.
bool EndsTheWait(GroupAbort::Sockets sockets) {
  std::promise<Listener*> begun;
  auto accepted = std::make_shared<std::promise<bool>>();
  std::future<bool> called = accepted->get_future();
  GroupAbort abort;
  Listener* listener = nullptr;
  std::thread aborter([&] {
    listener = begun.get_future().get();
    abort.Abort();
  });
  const auto wait = [&begun, accepted] {
    Listener own;
    begun.set_value(&own);
    accepted->set_value(own.Accept());
  };
  EXPECT_THROW(abort.Connect(wait, sockets), PeerFailure);
  aborter.join();
  Fd caller;
  if (sockets == GroupAbort::Sockets::kGloo) caller = listener->Call();
  const bool was_called = called.get();
  GroupAbort::JoinAbandoned();
  return !was_called;
}

TEST(GroupAbortTest, AnAbortEndsNcclsWaitForWhoWillNotCall) {
  EXPECT_TRUE(EndsTheWait(GroupAbort::Sockets::kNccl));
}

TEST(GroupAbortTest, GloosWaitIsLeftToItsTimeout) {
  EXPECT_FALSE(EndsTheWait(GroupAbort::Sockets::kGloo));
}

TEST(GroupAbortTest, SocketsOfNcclThatHasConnectedAreItsOwn) {
  Connection during;
  GroupAbort abort;
  abort.Connect([&] { during = Connection::Make(); }, GroupAbort::Sockets::kNccl);
  abort.Abort();
  ASSERT_EQ(send(during.ours.get(), "x", 1, 0), 1);
  EXPECT_FALSE(IsShutDown(during.theirs));
}

TEST(GroupAbortTest, AConnectOfNcclThatDoesNotEndIsLeft) {
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  GroupAbort abort;
  abort.Abort();
  EXPECT_THROW(abort.Connect(
                   [release, ended] {
                     release->get_future().wait();
                     ended->set_value();
                   },
                   GroupAbort::Sockets::kNccl),
               PeerFailure);
  GroupAbort::JoinAbandoned(absl::Milliseconds(20));
  release->set_value();
  ended->get_future().wait();
}

class NamedBackend : public c10d::Backend {
 public:
  NamedBackend(std::string name, std::function<void()> on_abort)
      : Backend(0, 1), name_(std::move(name)), on_abort_(std::move(on_abort)) {}
  const std::string getBackendName() const override { return name_; }
  void abort() override { on_abort_(); }

 private:
  const std::string name_;
  const std::function<void()> on_abort_;
};

TEST(GroupAbortTest, NobodyWaitsForNcclsAbort) {
  std::promise<void> release;
  std::thread::id by;
  const auto backend = c10::make_intrusive<NamedBackend>("nccl", [&] {
    by = std::this_thread::get_id();
    release.get_future().wait();
    throw std::runtime_error("unhandled cuda error");  // is logged, and nothing more
  });
  GroupAbort abort;
  abort.Add(backend);
  abort.Abort();
  release.set_value();
  GroupAbort::JoinAbandoned();
  EXPECT_NE(by, std::thread::id());
  EXPECT_NE(by, std::this_thread::get_id());
}

TEST(GroupAbortTest, OthersAreAbortedAtOnce) {
  bool aborted = false;
  const auto backend = c10::make_intrusive<NamedBackend>("shm", [&] { aborted = true; });
  GroupAbort abort;
  abort.Abort();
  abort.Add(backend);
  EXPECT_TRUE(aborted);
}

TEST(GroupAbortTest, AConnectThatFailsAsTheGenerationEndsHasNoFaultOfItsOwn) {
  GroupAbort abort;
  EXPECT_THROW(abort.Connect([&abort] {
    abort.Abort();
    throw std::out_of_range("no such peer");
  }),
               PeerFailure);
  GroupAbort::JoinAbandoned();
}

TEST(GroupAbortTest, WhatAConnectThrowsIsThrown) {
  GroupAbort abort;
  EXPECT_THROW(abort.Connect([] { throw std::out_of_range("no such peer"); }), std::out_of_range);
}

}  // namespace
}  // namespace ddprun::worker
