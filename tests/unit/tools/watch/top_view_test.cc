#include "tools/watch/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/wire/training.h"

namespace ddprun::launcher {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void AddNode(const std::string& id, uint32_t first_rank, const std::vector<uint64_t>& steps,
             uint32_t step_us, rendezvous::v1::JobStatus* job) {
  auto* node = job->add_nodes();
  node->set_node_id(id);
  node->set_state(steps.empty() ? "spare" : "running");
  node->set_step_us(step_us);
  node->set_silent_ms(300);
  for (const uint64_t step : steps) {
    auto* worker = node->add_workers();
    worker->set_rank(first_rank++);
    worker->set_phase("train");
    worker->set_step(step);
  }
}

rendezvous::v1::JobStatus FourRanks() {
  rendezvous::v1::JobStatus job;
  job.set_run_id("job7");
  job.set_description("train.py --lr 0.1 (2 nodes)");
  job.set_phase("running");
  job.set_reason("2 nodes came together");
  job.set_generation(2);
  job.set_restart_count(1);
  job.set_restarts_charged(1);
  job.set_max_restarts(3);
  job.set_age_ms(3'725'000);
  AddNode("host0", 0, {500, 500}, 100'000, &job);
  AddNode("host1", 2, {500, 480}, 100'000, &job);
  AddNode("host2", 0, {}, 0, &job);
  return job;
}

std::vector<TopLine> Screen(rendezvous::v1::JobStatus job, TopOrder order, TopSize size) {
  rendezvous::NoteLag(&job);
  return TopLines(job, "h:1", order, size);
}

std::vector<std::string> Lines(const rendezvous::v1::JobStatus& job, TopOrder order, TopSize size) {
  std::vector<std::string> texts;
  for (const TopLine& line : Screen(job, order, size)) texts.push_back(line.text);
  return texts;
}

TEST(TopView, ShowsTheJobAndEveryRank) {
  const auto lines = Lines(FourRanks(), TopOrder::kRank, {.columns = 80, .rows = 24});
  EXPECT_EQ(lines[0], "job job7: running for 1 h 2 min, generation 2, restarts 1 of 3; h:1");
  EXPECT_EQ(lines[1], "train.py --lr 0.1 (2 nodes)");
  EXPECT_EQ(lines[2], "2 nodes came together");
  EXPECT_EQ(lines[3], "3 nodes, 4 ranks; step 480 to 500; 10 steps/s");
  EXPECT_EQ(lines[4], "slowest: rank 3 on host1, 20 steps behind");
  EXPECT_EQ(lines[5],
            " RANK  NODE                STATE           STEP BEHIND STEPS/S            SILENT");
  EXPECT_EQ(lines[6],
            "    0  host0               train            500      -      10 ████████   300 ms");
  EXPECT_EQ(lines[9],
            "    3  host1               behind           480     20      10 ████████   300 ms");
  EXPECT_EQ(lines[10],
            "    -  host2               spare              -      -       -            300 ms");
  EXPECT_THAT(lines.back(), StartsWith("q quit   sort by:  r [rank]  b behind"));
}

// On the first node each worker has a GPU; on the second they share one, and its driver doesn't
// report how busy it is.
rendezvous::v1::JobStatus WithGpus() {
  rendezvous::v1::JobStatus job = FourRanks();
  const auto add = [&job](int node, uint32_t index, uint64_t used_gib) {
    auto* gpu = job.mutable_nodes(node)->add_gpus();
    gpu->set_index(index);
    gpu->set_memory_used_bytes(used_gib << 30);
    gpu->set_memory_total_bytes(uint64_t{80} << 30);
    return gpu;
  };
  job.mutable_nodes(0)->set_worker_count(2);
  job.mutable_nodes(1)->set_worker_count(2);
  add(0, 0, 61)->set_utilization_percent(97);
  add(0, 3, 62)->set_utilization_percent(90);
  add(1, 0, 7);
  return job;
}

TEST(TopView, ShowsGpus) {
  const auto lines = Lines(WithGpus(), TopOrder::kRank, {.columns = 89, .rows = 24});
  EXPECT_THAT(lines[3], EndsWith("; 3 GPUs 94%, 130.0/240.0 GiB"));
  EXPECT_EQ(lines[5],
            " RANK  NODE        STATE           STEP BEHIND STEPS/S            SILENT  GPU     GPU "
            "GiB");
  EXPECT_EQ(lines[7],
            "    1  host0       train            500      -      10 ████████   300 ms  90%   "
            "62.0/80.0");
  EXPECT_EQ(lines[8],
            "    2  host1       train            500      -      10 ████████   300 ms    -    "
            "7.0/80.0");
  EXPECT_EQ(
      lines[10],
      "    -  host2       spare              -      -       -            300 ms    -           "
      "-");
}

TEST(TopView, ShowsWhichGpusAreLost) {
  rendezvous::v1::JobStatus job = WithGpus();
  const auto lose = [&job](int node, int gpu) {
    auto* lost = job.mutable_nodes(node)->mutable_gpus(gpu);
    const uint32_t index = lost->index();
    lost->Clear();
    lost->set_index(index);
    lost->set_lost(true);
  };
  lose(0, 1);
  const TopSize size = {.columns = 97, .rows = 24};
  auto lines = Lines(job, TopOrder::kRank, size);
  EXPECT_THAT(lines[3], EndsWith("; 3 GPUs (1 lost) 97%, 68.0/160.0 GiB"));
  EXPECT_THAT(lines[6], EndsWith("  97%   61.0/80.0"));
  EXPECT_THAT(lines[7], HasSubstr("GPU lost"));
  EXPECT_THAT(lines[7], EndsWith(" lost           -"));
  EXPECT_EQ(Screen(job, TopOrder::kRank, size)[7].tone, TopTone::kBad);
  lose(0, 0);
  lose(1, 0);
  lines = Lines(job, TopOrder::kRank, size);
  EXPECT_THAT(lines[3], EndsWith("; 3 GPUs lost"));
  EXPECT_THAT(lines[9], HasSubstr(" GPU lost "));
  EXPECT_EQ(lines[4], "slowest: rank 3 on host1, 20 steps behind");
  EXPECT_THAT(lines[9], EndsWith(" lost           -"));
}

TEST(TopView, GpusTakeThePlaceOfTheSilenceInANarrowTerminal) {
  const auto lines = Lines(WithGpus(), TopOrder::kRank, {});
  EXPECT_EQ(lines[9],
            "    3  host1       behind           480     20      10 ████████    -    7.0/80.0");
}

// Silence, memory and bars are left out; a rank that lags is still named.
TEST(TopView, IsOfUseAt60Columns) {
  const auto lines = Lines(WithGpus(), TopOrder::kRank, {.columns = 60, .rows = 24});
  EXPECT_EQ(lines[0], "job job7: running for 1 h 2 min, gen 2, restarts 1 of 3");
  EXPECT_EQ(lines[4], "slowest: rank 3 on host1, 20 steps behind");
  EXPECT_EQ(lines.back(), "q quit   sort by:  r [rank]  b behind  s steps/s  t silent");
  EXPECT_EQ(lines[5], " RANK  NODE         STATE           STEP BEHIND STEPS/S  GPU");
  EXPECT_EQ(lines[6], "    0  host0        train            500      -      10  97%");
  EXPECT_EQ(lines[9], "    3  host1        behind           480     20      10    -");
  EXPECT_EQ(Screen(WithGpus(), TopOrder::kRank, {.columns = 60, .rows = 24})[9].tone,
            TopTone::kWarning);
}

TEST(TopView, BarsShowWhoIsSlower) {
  auto job = FourRanks();
  job.mutable_nodes(1)->set_step_us(160'000);  // 5 of 8
  const auto lines = Lines(job, TopOrder::kRank, {});
  EXPECT_THAT(lines[6], HasSubstr(" 10 ████████ "));
  EXPECT_THAT(lines[8], HasSubstr(" slow "));
  EXPECT_THAT(lines[8], HasSubstr(" 6.25 █████    "));
  EXPECT_EQ(lines[4], "slowest: rank 3 on host1, 20 steps behind; 1 more lags");
}

TEST(TopView, ColoursAreThereUnlessSomebodyWantsNone) {
  const auto lines = Screen(FourRanks(), TopOrder::kRank, {});
  const std::string coloured = ScreenText(lines, TopColours::kYes);
  EXPECT_THAT(coloured, HasSubstr("\x1b[33m    3  host1"));
  EXPECT_THAT(coloured, HasSubstr("\x1b[7m RANK"));
  const std::string plain = ScreenText(lines, TopColours::kNo);
  EXPECT_THAT(plain, Not(HasSubstr("\x1b[33m")));
  EXPECT_THAT(plain, HasSubstr("\x1b[1m    3  host1"));
}

TEST(TopView, TwinFiguresOfADriverThatDoesNotAnswerAreNotShown) {
  auto job = WithGpus();
  for (auto& node : *job.mutable_nodes()) node.set_gpus_age_ms(5001);
  EXPECT_EQ(Lines(job, TopOrder::kRank, {}), Lines(FourRanks(), TopOrder::kRank, {}));
}

TEST(TopView, WhatWasToldLaterIsNotBehind) {
  auto job = FourRanks();
  job.mutable_nodes(1)->set_progress_age_ms(1000);  // ten steps ago
  job.mutable_nodes(1)->mutable_workers(0)->set_step(490);
  job.mutable_nodes(1)->mutable_workers(1)->set_step(489);
  const auto lines = Lines(job, TopOrder::kRank, {});
  EXPECT_EQ(lines[4], "");
}

TEST(TopView, TheSlowestFirst) {
  auto job = FourRanks();
  job.mutable_nodes(1)->set_step_us(200'000);
  EXPECT_THAT(Lines(job, TopOrder::kRate, {})[6], StartsWith("    2  host1"));
  EXPECT_THAT(Lines(job, TopOrder::kRate, {})[6], HasSubstr("slow"));
  EXPECT_THAT(Lines(job, TopOrder::kStep, {})[6], StartsWith("    3  host1"));
  job.mutable_nodes(2)->set_silent_ms(4000);
  EXPECT_THAT(Lines(job, TopOrder::kSilent, {})[6], StartsWith("    -  host2"));
  EXPECT_THAT(Lines(job, TopOrder::kSilent, {})[6], HasSubstr(" silent "));
  EXPECT_THAT(Lines(job, TopOrder::kSilent, {})[6], EndsWith("4.0 s"));
}

TEST(TopView, FitsTheTerminal) {
  auto job = FourRanks();
  job.set_description(std::string(200, 'x') + "\x1b[31m\n");
  job.set_reason(
      "größer größer größer größer größer größer größer größer größer größer größer größer");
  for (const TopSize size : {TopSize{80, 24}, TopSize{20, 9}, TopSize{1, 1}, TopSize{80, 3}}) {
    const auto lines = Lines(job, TopOrder::kRank, size);
    EXPECT_LE(lines.size(), size.rows);
    for (const std::string& line : lines) {
      size_t shown = 0;
      for (const char byte : line) shown += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
      EXPECT_LE(shown, size.columns) << line;
      EXPECT_THAT(line, Not(HasSubstr("\x1b")));
      EXPECT_THAT(line, Not(HasSubstr("\n")));
    }
  }
  EXPECT_THAT(Lines(job, TopOrder::kRank, {.columns = 80, .rows = 10})[8], StartsWith("… 3 more"));
}

TEST(TopView, AProgramWithoutMarksHasDashes) {
  auto job = FourRanks();
  for (auto& node : *job.mutable_nodes()) {
    node.set_step_us(0);
    for (auto& worker : *node.mutable_workers()) {
      worker.set_phase("unmarked");
      worker.set_step(0);
    }
  }
  const auto lines = Lines(job, TopOrder::kRank, {});
  EXPECT_EQ(lines[3], "3 nodes, 4 ranks");
  EXPECT_EQ(lines[6],
            "    0  host0               unmarked           -      -       -            300 ms");
}

}  // namespace
}  // namespace ddprun::launcher
