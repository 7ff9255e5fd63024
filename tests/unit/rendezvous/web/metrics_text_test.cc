#include "rendezvous/web/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/support/trees.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kStarted = absl::FromUnixMillis(1'767'355'445'125);

v1::GetStatusReply Sample() {
  v1::GetStatusReply reply;
  reply.set_release("0.1.0");
  v1::JobStatus* job = reply.add_jobs();
  job->set_run_id("a \"quoted\"\nname");
  job->set_phase("running");
  job->set_generation(3);
  job->set_restart_count(2);
  job->set_restarts_charged(1);
  job->set_max_restarts(5);
  job->set_age_ms(61500);
  job->add_history()->set_world_size(3);
  v1::TimeStatus* time = job->add_counted();
  time->set_cause("data_wait");
  time->set_us(2500000);
  v1::NodeStatus* node = job->add_nodes();
  node->set_node_id("host0");
  node->set_state("running");
  node->set_group_rank(0);
  node->set_silent_ms(120);
  node->set_step_us(20000);
  v1::GpuStatus* gpu = node->add_gpus();
  gpu->set_index(2);
  gpu->set_utilization_percent(97);
  gpu->set_memory_used_bytes(uint64_t{1} << 36);
  gpu->set_memory_total_bytes(uint64_t{1} << 37);
  node->add_gpus()->set_index(3);
  v1::GpuStatus* lost = node->add_gpus();
  lost->set_index(4);
  lost->set_lost(true);
  node->set_gpus_age_ms(1000);
  v1::WorkerStatus* worker = node->add_workers();
  worker->set_rank(4);
  worker->set_phase("train");
  worker->set_step(77);
  node->add_workers()->set_phase("unmarked");
  return reply;
}

// All outcomes from the start: an alert on an increase would miss the first job of a new series.
TEST(MetricsText, CountsJobsThatEnded) {
  v1::GetStatusReply reply;
  v1::EndedCount* count = reply.add_jobs_ended();
  count->set_outcome("failed");
  count->set_jobs(3);
  const std::string text = MetricsText(reply, kStarted);
  EXPECT_THAT(text, HasSubstr("# TYPE ddprun_jobs_ended_total counter\n"));
  EXPECT_THAT(text, HasSubstr("ddprun_jobs_ended_total{outcome=\"failed\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("ddprun_jobs_ended_total{outcome=\"failed_for_good\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("ddprun_jobs_ended_total{outcome=\"succeeded\"} 0\n"));
}

TEST(MetricsText, TellsOfJobsNodesAndWorkers) {
  const std::string text = MetricsText(Sample(), kStarted);
  const std::string job = R"(run_id="a \"quoted\"\nname")";
  for (const std::string& line :
       {std::string(R"(ddprun_service_info{release="0.1.0"} 1)"),
        std::string("process_start_time_seconds 1767355445.125"),
        "ddprun_job_info{" + job + R"(,phase="running"} 1)",
        "ddprun_job_age_seconds{" + job + "} 61.5", "ddprun_job_restarts_total{" + job + "} 2",
        "ddprun_job_restarts_left{" + job + "} 4", "ddprun_job_world_size{" + job + "} 3",
        "ddprun_job_seconds_total{" + job + R"(,cause="data_wait"} 2.5)",
        "ddprun_node_silent_seconds{" + job + R"(,node="host0"} 0.12)",
        "ddprun_node_step_seconds{" + job + R"(,node="host0"} 0.02)",
        "ddprun_gpu_utilization_ratio{" + job + R"(,node="host0",gpu="2"} 0.97)",
        "ddprun_gpu_memory_used_bytes{" + job + R"(,node="host0",gpu="2"} 68719476736)",
        "ddprun_gpu_memory_total_bytes{" + job + R"(,node="host0",gpu="2"} 137438953472)",
        "ddprun_gpu_lost{" + job + R"(,node="host0",gpu="2"} 0)",
        "ddprun_gpu_lost{" + job + R"(,node="host0",gpu="4"} 1)",
        "ddprun_worker_step{" + job + R"(,node="host0",rank="4"} 77)"}) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
  EXPECT_THAT(text,
              Not(HasSubstr("ddprun_gpu_memory_used_bytes{" + job + R"(,node="host0",gpu="4")")));
  EXPECT_THAT(text, HasSubstr("# TYPE ddprun_job_restarts_total counter\n"));
}

TEST(MetricsText, KnowsNothingOfGpusWhoseDriverTellsNothing) {
  v1::GetStatusReply reply = Sample();
  const std::string text = MetricsText(reply, kStarted);
  const size_t first = text.find("\nddprun_gpu_utilization_ratio{");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("\nddprun_gpu_utilization_ratio{", first + 1), std::string::npos);
  reply.mutable_jobs(0)->mutable_nodes(0)->set_gpus_age_ms(5001);
  EXPECT_THAT(MetricsText(reply, kStarted), Not(HasSubstr("ddprun_gpu_")));
}

// A step of 0 would look like one that was taken.
TEST(MetricsText, AWorkerWithoutMarksHasNoStep) {
  EXPECT_THAT(
      MetricsText(Sample(), kStarted),
      Not(HasSubstr(R"(ddprun_worker_step{run_id="a \"quoted\"\nname",node="host0",rank="0"})")));
}

TEST(MetricsText, NamesTheBuild) {
  EXPECT_THAT(MetricsText(Sample(), kStarted),
              HasSubstr(R"(ddprun_build_info{version="0.1.0",compiler=")"));
}

TEST(MetricsText, TellsOfTheTrainingWhereWorkersDo) {
  v1::GetStatusReply reply = Sample();
  EXPECT_THAT(MetricsText(reply, kStarted), Not(HasSubstr("ddprun_job_loss")));
  v1::TrainingStatus* training = reply.mutable_jobs(0)->mutable_nodes(0)->mutable_training();
  training->set_loss(0.25);
  training->set_loss_workers(1);
  training->set_samples_per_second(4000);
  const std::string job = R"({run_id="a \"quoted\"\nname"} )";
  EXPECT_THAT(MetricsText(reply, kStarted), HasSubstr("\nddprun_job_loss" + job + "0.25\n"));
  EXPECT_THAT(MetricsText(reply, kStarted),
              HasSubstr("\nddprun_job_samples_per_second" + job + "4000\n"));
  training->set_loss(std::nan(""));
  EXPECT_THAT(MetricsText(reply, kStarted), HasSubstr("\nddprun_job_loss" + job + "NaN\n"));
}

// The names of a reply with all that is ever reported, and those of the page.
TEST(MetricsText, HasTheMetricsOfTheirPage) {
  v1::GetStatusReply reply = Sample();
  v1::NodeStatus* node = reply.mutable_jobs(0)->mutable_nodes(0);
  node->set_lag("slow");
  node->mutable_training()->set_loss(0.25);
  node->mutable_training()->set_loss_workers(1);
  node->mutable_training()->set_samples_per_second(4000);
  std::set<std::string> ours;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(MetricsText(reply, kStarted), '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() > 2 && words[1] == "TYPE") ours.insert(words[2]);
  }
  std::set<std::string> documented;
  std::ifstream page(InSourceTree("docs/MONITORING.md"));
  for (std::string line; std::getline(page, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, '`');  // those between ` are odd
    for (size_t i = 1; absl::StartsWith(line, "- ") && i < parts.size(); i += 2) {
      if (absl::StartsWith(parts[i], "ddprun_") || absl::EndsWith(parts[i], "_seconds")) {
        documented.insert(parts[i]);
      }
    }
  }
  EXPECT_EQ(ours, documented);
  EXPECT_GT(ours.size(), 20U);
}

TEST(MetricsText, TellsWhoLags) {
  v1::GetStatusReply reply = Sample();
  EXPECT_THAT(MetricsText(reply, kStarted), Not(HasSubstr("ddprun_node_lag")));
  v1::NodeStatus* node = reply.mutable_jobs(0)->mutable_nodes(0);
  node->set_lag("slow");
  node->mutable_workers(0)->set_behind(21);
  const std::string text = MetricsText(reply, kStarted);
  EXPECT_THAT(text, HasSubstr(R"(,node="host0",lag="slow"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(,node="host0",rank="4"} 21)"));
}

TEST(MetricsText, WithoutJobsOnlyTheServiceIsThere) {
  v1::GetStatusReply reply;
  reply.set_release("0.1.0");
  EXPECT_THAT(MetricsText(reply, kStarted), Not(HasSubstr("ddprun_job_")));
}

}  // namespace
}  // namespace ddprun::rendezvous
