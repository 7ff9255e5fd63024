#include "launcher/side_channels/elastic_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ElasticEventsTest : public ::testing::Test {
 protected:
  ElasticEventsTest()
      : events_(&plan_, "host0", Instant(),
                [this](const std::string& line) { lines_.push_back(line); }) {
    plan_.worker_count = 2;
    plan_.job.run_id = "job";
    plan_.rdzv_backend = "static";
    plan_.argv = {"/usr/bin/python3", "-u", "train.py"};
    assignment_.generation = rendezvous::Generation(1);
    assignment_.group_rank = 1;
    assignment_.group_world_size = 2;
    assignment_.base_rank = 2;
    assignment_.base_role_rank = 2;
    assignment_.role_world_size = 4;
  }

  void Start() {
    events_.OnAssignment(Instant() + absl::Milliseconds(250), assignment_);
    events_.OnStarted(0, 100);
    events_.OnStarted(1, 101);
  }

  LaunchPlan plan_;
  rendezvous::Assignment assignment_;
  std::vector<std::string> lines_;
  ElasticEvents events_;
};

TEST_F(ElasticEventsTest, ASuccessfulRunInTorchrunsWords) {
  Start();
  for (uint32_t rank : {0U, 1U}) {
    WorkerEnd end;
    end.local_rank = rank;
    events_.OnEnded(end);
  }
  events_.OnExit(Instant() + absl::Seconds(3), /*failed=*/false);
  ASSERT_EQ(lines_.size(), 7U);
  // A line of torchrun 2.11, with this run's values.
  EXPECT_EQ(
      lines_[0],
      R"({"name": "torchelastic.worker.status.RENDEZVOUS", "source": "AGENT", "timestamp": 0, )"
      R"("metadata": {"run_id": "job", "global_rank": null, "group_rank": null, "worker_id": )"
      R"(null, )"
      R"("role": "default", "hostname": "host0", "state": "RENDEZVOUS", "total_run_time": 0, )"
      R"("rdzv_backend": "static", "raw_error": null, "metadata": "{\"group_world_size\": null, )"
      R"(\"entry_point\": \"python3\"}", "agent_restarts": 0, "duration_ms": 250.0}})"
      "\n");
  EXPECT_THAT(lines_[1],
              StartsWith(R"({"name": "torchelastic.worker.status.ASSIGN_WORKER_RANKS")"));
  EXPECT_EQ(
      lines_[3],
      R"({"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 0, )"
      R"("metadata": {"run_id": "job", "global_rank": 3, "group_rank": 1, "worker_id": "101", )"
      R"("role": "default", "hostname": "host0", "state": "START", "total_run_time": 0, )"
      R"("rdzv_backend": "static", "raw_error": null, "metadata": "{\"group_world_size\": 2, )"
      R"(\"entry_point\": \"python3\", \"local_rank\": [1], \"role_rank\": [3], )"
      R"(\"role_world_size\": [4], \"exit_code\": [null], \"worker_pid\": [null]}", )"
      R"("agent_restarts": 0, "duration_ms": null}})"
      "\n");
  EXPECT_THAT(lines_[4], HasSubstr(R"("state": "SUCCEEDED", "total_run_time": 3)"));
  EXPECT_THAT(lines_[6], HasSubstr(R"("source": "AGENT")"));
  EXPECT_THAT(lines_[6], HasSubstr(R"("state": "SUCCEEDED")"));
}

TEST_F(ElasticEventsTest, FailuresHaveTheirCodeAndError) {
  Start();
  WorkerEnd killed;
  killed.local_rank = 0;
  killed.pid = 100;
  killed.signal = SIGTERM;
  events_.OnEnded(killed);
  WorkerEnd failed;
  failed.local_rank = 1;
  failed.pid = 101;
  failed.exit_code = 3;
  failed.message = "ValueError: \xff";
  events_.OnEnded(failed);
  lines_.clear();
  events_.OnExit(Instant(), /*failed=*/false);
  ASSERT_EQ(lines_.size(), 3U);
  EXPECT_THAT(lines_[0], HasSubstr(R"(\"exit_code\": [-15], \"worker_pid\": [100])"));
  EXPECT_THAT(lines_[0], HasSubstr("system_terminated_error"));
  EXPECT_THAT(lines_[1], HasSubstr(R"("state": "FAILED")"));
  EXPECT_THAT(lines_[1], HasSubstr(R"(\"exit_code\": [3])"));
  EXPECT_THAT(lines_[1], HasSubstr("ValueError: "));
}

TEST_F(ElasticEventsTest, AnAgentThatIsEndedWithoutWorkersSaysSo) {
  events_.OnExit(Instant(), /*failed=*/true);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], HasSubstr(R"("state": "FAILED")"));
}

}  // namespace
}  // namespace ddprun::launcher
