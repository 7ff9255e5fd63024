#include "launcher/stores/tcp_store_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "launcher/machine/host_probe.h"
#include "launcher/stores/tcp_store_server.h"
#include "tests/support/loop_until.h"

namespace ddprun::launcher {
namespace {

// The server is on the loop of the test's thread, clients block on one of their own.
class TcpStoreClientTest : public ::testing::Test {
 protected:
  void Serve() {
    auto server =
        TcpStoreServer::Start(loop_.get(), Fd(fcntl(port_.socket.get(), F_DUPFD_CLOEXEC, 0)), {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  absl::StatusOr<TcpStoreClient> Connect(absl::Duration limit = absl::Seconds(10)) {
    return TcpStoreClient::Connect("127.0.0.1", port_.port, MonotonicNow() + limit);
  }
  void Meanwhile(const std::function<void()>& what) {
    std::atomic<bool> done = false;
    std::thread client([&] {
      what();
      done = true;
      loop_->Post([] {});
    });
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return done.load(); }));
    client.join();
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  ReservedPort port_ = *ReservePort(0);
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(TcpStoreClientTest, SetsAndGets) {
  Serve();
  const std::string large(300'000, 'x');
  Meanwhile([&] {
    auto client = Connect();
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(client->Set("a", large).ok());
    EXPECT_TRUE(client->Set("b", "").ok());
    EXPECT_EQ(client->WaitAndGet("a").value_or("none"), large);
    EXPECT_EQ(client->WaitAndGet("b").value_or("none"), "");
  });
}

TEST_F(TcpStoreClientTest, WaitsForOthers) {
  Serve();
  Meanwhile([&] {
    auto reader = Connect();
    auto writer = Connect();
    ASSERT_TRUE(reader.ok() && writer.ok());
    std::thread other([&] { EXPECT_TRUE(writer->Set("k", "v").ok()); });
    EXPECT_EQ(reader->WaitAndGet("k").value_or("none"), "v");
    other.join();
  });
}

TEST_F(TcpStoreClientTest, NobodySetsIt) {
  Serve();
  Meanwhile([&] {
    auto client = Connect(absl::Milliseconds(100));
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_EQ(client->WaitAndGet("k").status().code(), absl::StatusCode::kDeadlineExceeded);
  });
}

TEST_F(TcpStoreClientTest, NobodyListens) {
  const auto client = Connect();
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), ::testing::HasSubstr("'127.0.0.1' port"));
}

// Values are bounded, whatever the server is.
TEST_F(TcpStoreClientTest, TooLongAValueIsRefused) {
  Serve();
  Meanwhile([&] {
    auto client = Connect();
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(client->Set("k", std::string((1 << 20) + 1, 'x')).ok());
    EXPECT_EQ(client->WaitAndGet("k").status().code(), absl::StatusCode::kInternal);
  });
}

}  // namespace
}  // namespace ddprun::launcher
