#include "worker/client/agent_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::worker {
namespace {

using testing::FakeAgent;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

constexpr absl::Duration kShort = absl::Milliseconds(50);
constexpr absl::Duration kLong = absl::Seconds(60);

class AgentClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    agent_ = FakeAgent::Start({.socket_path = directory_.File("agent"), .generation = 4});
    client_ = AgentClient::Create(directory_.File("agent"), "test");
    store_ = client_->Store(4);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<AgentClient> client_;
  std::shared_ptr<KeyValueStore> store_;
};

TEST_F(AgentClientTest, AnswersTheLiveAssignment) {
  const absl::StatusOr<WorkerAssignment> assignment = client_->GetAssignment(1, 3, kLong);
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_EQ(assignment->generation, 4U);
  EXPECT_EQ(assignment->rank, 1U);
  EXPECT_EQ(assignment->world_size, 2U);
  EXPECT_EQ(assignment->node_address, "127.0.0.1");
}

TEST_F(AgentClientTest, AssignmentErrorsKeepTheirCodeAndNameTheAgent) {
  EXPECT_EQ(client_->GetAssignment(1, 4, kShort).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const absl::Status status = client_->GetAssignment(9, 0, kShort).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("local rank 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.File("agent")));
}

// Whether the other end closes a connection within half a second.
bool Closes(int connection) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waited = {.fd = connection, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&waited, 1, static_cast<int>(left.count())) == 0) return false;
    char bytes[256];
    if (read(connection, bytes, sizeof(bytes)) <= 0) return true;
  }
}

// The call used to be given up after 100 ms; an agent may wait as long for a core.
TEST_F(AgentClientTest, AnAgentThatAnswersLateIsWaitedFor) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = directory_.File("late");
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  const auto client = AgentClient::Create(path, "test");
  auto asked =
      std::async(std::launch::async, [&] { return client->GetAssignment(0, 0, kLong).status(); });
  const int connection = accept(listener, nullptr, nullptr);
  EXPECT_FALSE(Closes(connection));
  close(connection);
  close(listener);
  EXPECT_EQ(asked.get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AgentClientTest, TheStoreKeepsBytes) {
  const std::string value("a\0\xff z", 5);
  ASSERT_TRUE(store_->Set("key", value).ok());
  EXPECT_EQ(*store_->Get("key", kLong), value);
  EXPECT_TRUE(*store_->Check({"key"}));
  EXPECT_FALSE(*store_->Check({"key", "other"}));
  EXPECT_EQ(*store_->Count(), 1);
  EXPECT_TRUE(*store_->Delete("key"));
  EXPECT_FALSE(*store_->Delete("key"));
  EXPECT_EQ(*store_->Count(), 0);
}

TEST_F(AgentClientTest, RanksTellEachOtherInOneCall) {
  auto waiting = std::async(std::launch::async, [&] {
    return store_->Gather("r/0", std::string("\0zero", 5), {"r/0", "r/1"}, kLong);
  });
  agent_->AwaitWaiters(1);
  const std::vector<std::string> all = {std::string("\0zero", 5), ""};
  EXPECT_EQ(*store_->Gather("r/1", "", {"r/0", "r/1"}, kLong), all);
  EXPECT_EQ(*waiting.get(), all);
  const absl::Status never = store_->Gather("", "", {"never"}, kShort).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kDeadlineExceeded) << never;
}

TEST_F(AgentClientTest, AnAnswerWithoutAllValuesIsAnError) {
  const auto agent =
      FakeAgent::Start({.socket_path = directory_.File("other"), .keeps_values_back = true});
  const auto client = AgentClient::Create(directory_.File("other"), "test");
  const absl::Status short_of_one =
      client->Store(1)->Gather("r/0", "zero", {"r/0"}, kLong).status();
  EXPECT_EQ(short_of_one.code(), absl::StatusCode::kInternal) << short_of_one;
  EXPECT_THAT(std::string(short_of_one.message()), HasSubstr("0 values for 1 keys"));
}

TEST_F(AgentClientTest, TheStoreCounts) {
  EXPECT_EQ(*store_->Add("n", 5), 5);
  EXPECT_EQ(*store_->Add("n", -7), -2);
}

TEST_F(AgentClientTest, CompareSetIsC10ds) {
  EXPECT_EQ(*store_->CompareSet("k", "x", "new"), "x");  // absent, and something was expected
  EXPECT_FALSE(*store_->Check({"k"}));
  EXPECT_EQ(*store_->CompareSet("k", "", "one"), "one");
  EXPECT_EQ(*store_->CompareSet("k", "wrong", "two"), "one");
  EXPECT_EQ(*store_->CompareSet("k", "one", "two"), "two");
}

TEST_F(AgentClientTest, AWaitThatRunsOutNamesTheKey) {
  const absl::Status status = store_->Wait({"never"}, kShort);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'never'"));
}

TEST_F(AgentClientTest, AWaitingGetIsAnsweredWhenTheKeyComes) {
  auto waiting = std::async(std::launch::async, [&] { return store_->Get("late", kLong); });
  agent_->AwaitWaiters(1);
  ASSERT_TRUE(store_->Set("late", "here").ok());
  EXPECT_EQ(*waiting.get(), "here");
}

TEST_F(AgentClientTest, TheEndOfTheGenerationEndsWaitsAtOnce) {
  auto waiting = std::async(std::launch::async, [&] { return store_->Wait({"never"}, kLong); });
  agent_->AwaitWaiters(1);
  agent_->EndGeneration("node b was lost");
  const absl::Status status = waiting.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node b was lost"));
}

TEST_F(AgentClientTest, AnotherGenerationAndAnotherJobAreRefused) {
  EXPECT_EQ(client_->Store(3)->Set("k", "v").code(), absl::StatusCode::kAborted);
  const auto foreign = AgentClient::Create(directory_.File("agent"), "other");
  EXPECT_EQ(foreign->Store(4)->Set("k", "v").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AgentClientTest, TheEndOfAGenerationIsToldWithItsReason) {
  std::promise<absl::StatusOr<std::string>> heard;
  const auto watch = client_->WatchGeneration(
      1, 4, [&](absl::StatusOr<std::string> why) { heard.set_value(std::move(why)); });
  agent_->EndGeneration("rank 0 was killed");
  const absl::StatusOr<std::string> why = heard.get_future().get();
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(*why, "rank 0 was killed");
}

TEST_F(AgentClientTest, AnEndedWatchSaysNothingAnyMore) {
  bool heard = false;
  client_->WatchGeneration(1, 4, [&](const absl::StatusOr<std::string>&) { heard = true; }).reset();
  agent_->EndGeneration("rank 0 was killed");
  std::promise<void> later;
  const auto other = client_->WatchGeneration(
      0, 4, [&](const absl::StatusOr<std::string>&) { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(heard);
}

TEST_F(AgentClientTest, AWatchThatLosesItsAgentSaysSo) {
  std::promise<absl::StatusOr<std::string>> heard;
  const auto client = AgentClient::Create(directory_.File("nobody"), "test");
  const auto watch = client->WatchGeneration(
      1, 4, [&](absl::StatusOr<std::string> why) { heard.set_value(std::move(why)); });
  EXPECT_EQ(heard.get_future().get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AgentClientTest, AMissingAgentIsAnErrorAtOnce) {
  const auto nobody = AgentClient::Create(directory_.File("nobody"), "test");
  const absl::Status status = nobody->Store(4)->Set("k", "v");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.File("nobody")));
}

TEST_F(AgentClientTest, TheDeathOfTheAgentEndsAWait) {
  auto waiting = std::async(std::launch::async, [&] { return store_->Wait({"never"}, kLong); });
  agent_->AwaitWaiters(1);
  agent_.reset();
  EXPECT_FALSE(waiting.get().ok());
}

}  // namespace
}  // namespace ddprun::worker
