#include "rendezvous/web/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "rendezvous/wire/training.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::json;

Instant Second(int seconds) { return Instant() + absl::Seconds(seconds); }

v1::NodeStatus* AddNode(v1::JobStatus* job, uint64_t step, uint64_t age_ms) {
  v1::NodeStatus* node = job->add_nodes();
  node->set_step_us(100'000);
  node->set_progress_age_ms(age_ms);
  v1::WorkerStatus* worker = node->add_workers();
  worker->set_phase("train");
  worker->set_step(step);
  return node;
}

v1::GetStatusReply StatusAt(uint64_t step) {
  v1::GetStatusReply reply;
  v1::JobStatus* job = reply.add_jobs();
  job->set_run_id("job7");
  job->set_generation(2);
  AddNode(job, step + 3, 100);
  v1::NodeStatus* node = AddNode(job, step, 500);
  node->add_workers()->set_phase("unmarked");
  node->add_gpus()->set_utilization_percent(90);
  node->add_gpus()->set_utilization_percent(70);
  node->add_gpus()->set_lost(true);
  return reply;
}

void SetTraining(v1::NodeStatus* node, double loss, uint32_t workers, double rate) {
  node->mutable_training()->set_loss(loss);
  node->mutable_training()->set_loss_workers(workers);
  node->mutable_training()->set_samples_per_second(rate);
}

TEST(ReadingsOf, TheRankFurthestBackSaysHowFarAJobIs) {
  const auto readings = ReadingsOf(StatusAt(40), Second(10));
  ASSERT_EQ(readings.size(), 1U);
  EXPECT_EQ(readings[0].run_id, "job7");
  EXPECT_EQ(readings[0].steps.step, 40U);
  EXPECT_EQ(readings[0].steps.generation, 2U);
  EXPECT_EQ(readings[0].steps.at, Instant() + absl::Milliseconds(9500)) << "as its node reported";
  EXPECT_EQ(readings[0].steps.step_time, absl::Milliseconds(100));
  EXPECT_DOUBLE_EQ(*readings[0].gpu_busy, 0.8) << "lost ones aren't counted";
  EXPECT_EQ(readings[0].loss, std::nullopt);
}

TEST(ReadingsOf, OldFiguresOfGpusAreNone) {
  auto reply = StatusAt(40);
  reply.mutable_jobs(0)->mutable_nodes(1)->set_gpus_age_ms(kFiguresFreshMs + 1);
  EXPECT_EQ(ReadingsOf(reply, Second(10))[0].gpu_busy, std::nullopt);
}

TEST(TrainingOf, LossIsAMeanOfWorkersAndSamplesAreASum) {
  auto reply = StatusAt(40);
  v1::JobStatus* job = reply.mutable_jobs(0);
  EXPECT_EQ(TrainingOf(*job).samples_per_second, std::nullopt);
  SetTraining(job->mutable_nodes(0), 1.0, 3, 100);
  SetTraining(job->mutable_nodes(1), 2.0, 1, 50);
  EXPECT_DOUBLE_EQ(*TrainingOf(*job).loss, 1.25);
  EXPECT_DOUBLE_EQ(*TrainingOf(*job).samples_per_second, 150);
}

TEST(CurvesJson, EachFigureHasAListAsLongAsTheAges) {
  CurveBook book;
  auto reply = StatusAt(40);
  SetTraining(reply.mutable_jobs(0)->mutable_nodes(0), 1.0 / 3, 1, 1e6 / 3);
  book.Take(Second(10), ReadingsOf(reply, Second(10)));
  reply = StatusAt(60);
  SetTraining(reply.mutable_jobs(0)->mutable_nodes(0), std::numeric_limits<double>::quiet_NaN(), 1,
              0);
  book.Take(Second(12), ReadingsOf(reply, Second(12)));
  const Json json = Json::parse(CurvesJson(book, Second(13)));
  const Json& job = json["jobs"][0];
  EXPECT_EQ(job["run_id"], "job7");
  for (const char* range : {"latest", "whole"}) {
    EXPECT_EQ(job[range]["ms_ago"], Json({3000, 1000}));
    EXPECT_EQ(job[range]["steps_per_second"], Json({nullptr, 10.0}));
    EXPECT_EQ(job[range]["loss"], Json({0.33333, "nan"}));
    EXPECT_EQ(job[range]["samples_per_second"], Json({333330.0, 0.0}));
    EXPECT_EQ(job[range]["gpu_busy"], Json({0.8, 0.8}));
  }
}

TEST(CurvesJson, WithoutJobsThereIsNothing) {
  EXPECT_EQ(CurvesJson(CurveBook(), Second(0)), R"({"jobs":[]})");
}

// What a browser gets each two seconds of a job that runs for weeks.
TEST(CurvesJson, IsShortHoweverLongAJobRuns) {
  CurveBook book;
  for (int second = 0; second < 100'000; second += 2) {
    book.Take(Second(second), ReadingsOf(StatusAt(second * 7), Second(second)));
  }
  EXPECT_LT(CurvesJson(book, Second(100'000)).size(), size_t{32} << 10);
}

}  // namespace
}  // namespace ddprun::rendezvous
