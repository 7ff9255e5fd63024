#include "tools/watch/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

rendezvous::v1::GetStatusReply Sample() {
  rendezvous::v1::GetStatusReply reply;
  reply.set_release("0.1.0");
  reply.set_term(0x1a);
  rendezvous::v1::JobStatus* job = reply.add_jobs();
  job->set_run_id("job7");
  job->set_description("train.py (1 node)");
  job->set_phase("running");
  job->set_reason("worker rank 1 failed");
  job->set_generation(2);
  job->set_restart_count(1);
  job->set_restarts_charged(1);
  job->set_max_restarts(3);
  job->set_age_ms(3'725'000);
  auto* node = job->add_nodes();
  node->set_node_id("host0");
  node->set_state("running");
  node->set_group_rank(0);
  node->set_worker_count(2);
  node->set_silent_ms(120);
  node->set_step_us(80'000);
  node->set_address("10.0.0.1");
  for (const uint64_t step : {41U, 40U}) {
    auto* worker = node->add_workers();
    worker->set_phase(step == 41 ? "train" : "checkpoint");
    worker->set_step(step);
  }
  auto* first = job->add_history();
  first->set_generation(1);
  first->set_world_size(2);
  first->set_group_world_size(1);
  first->set_reason("1 node came together");
  first->set_rule("all_nodes");
  first->set_began_ms_ago(3'725'000);
  first->set_ended_ms_ago(125'000);
  first->set_end_reason("worker rank 1 failed");
  first->set_first_step(1);
  first->set_last_step(30);
  return reply;
}

TEST(StatusText, ShowsHowFarTheWorkersAre) {
  const std::string text = StatusText(Sample(), "h:1");
  EXPECT_THAT(text, HasSubstr("ddprun rendezvous service 0.1.0 at h:1, term 1a, 1 job\n"));
  EXPECT_THAT(text, HasSubstr("job job7: running for 1 h 2 min, generation 2, restarts 1 of 3\n"));
  EXPECT_THAT(text, HasSubstr("120 ms  40 to 41          12.5  checkpoint, train 10.0.0.1\n"));
}

// Changes of membership restart workers, too, and no limit applies to them.
TEST(StatusText, RestartsThatWereChargedAreCountedAgainstTheLimit) {
  rendezvous::v1::JobStatus job = Sample().jobs(0);
  job.set_restart_count(3);
  EXPECT_EQ(RestartsText(job), "restarts 3, 1 of 3 charged");
  job.set_restarts_charged(3);
  EXPECT_EQ(RestartsText(job), "restarts 3 of 3");
  job.set_restarts_charged(0);
  job.set_max_restarts(0);
  EXPECT_EQ(RestartsText(job), "restarts 3");
  job.set_restart_count(0);
  EXPECT_EQ(RestartsText(job), "restarts 0 of 0");
}

TEST(StatusText, ClosingIsSinceTheGenerationEnded) {
  rendezvous::v1::GetStatusReply reply = Sample();
  reply.mutable_jobs(0)->set_phase("closing");
  reply.mutable_jobs(0)->set_age_ms(780'000);
  reply.mutable_jobs(0)->mutable_history(0)->set_ended_ms_ago(3000);
  EXPECT_THAT(StatusText(reply, "h:1"),
              HasSubstr("job job7: closing for 3.0 s (the job is 13 min 0 s old), generation 2"));
  reply.mutable_jobs(0)->clear_history();
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr("job job7: closing for 13 min 0 s, "));
}

TEST(StatusText, WideHasEachRankAndAllGenerations) {
  rendezvous::v1::GetStatusReply reply = Sample();
  auto* job = reply.mutable_jobs(0);
  job->mutable_nodes(0)->mutable_workers(1)->set_rank(1);
  job->mutable_nodes(0)->add_workers()->set_phase("unmarked");
  for (uint64_t generation = 2; generation <= 12; ++generation) {
    job->add_history()->set_generation(generation);
  }
  const std::string wide = StatusText(reply, "h:1", StatusDetail::kWide);
  EXPECT_THAT(wide,
              HasSubstr("\n         rank 0: train, step 41\n         rank 1: checkpoint, step "
                        "40\n         rank 0: unmarked\n"));
  EXPECT_THAT(wide, HasSubstr("\n      1  2 ranks"));
  const std::string plain = StatusText(reply, "h:1");
  EXPECT_THAT(plain, Not(HasSubstr("rank 0: train")));
  EXPECT_THAT(plain, Not(HasSubstr("\n      1  2 ranks")));
  EXPECT_THAT(plain, HasSubstr("2 more before (see -o wide)\n"));
}

TEST(StatusText, ShowsGpusThatAreTold) {
  rendezvous::v1::GetStatusReply reply = Sample();
  auto* node = reply.mutable_jobs(0)->mutable_nodes(0);
  auto* gpu = node->add_gpus();
  gpu->set_index(1);
  gpu->set_utilization_percent(97);
  gpu->set_memory_used_bytes(uint64_t{61} << 30);
  gpu->set_memory_total_bytes(uint64_t{80} << 30);
  node->add_gpus()->set_index(2);
  auto* lost = node->add_gpus();
  lost->set_index(3);
  lost->set_lost(true);
  EXPECT_THAT(StatusText(reply, "h:1"),
              HasSubstr("\n         GPU 1: 97%, 61.0/80.0 GiB; 2: -, 0.0/0.0 GiB; 3: lost\n"));
  node->set_gpus_age_ms(5001);
  EXPECT_THAT(StatusText(reply, "h:1"), Not(HasSubstr("GPU")));
}

TEST(StatusText, ShowsHowEachGenerationBeganAndWhatThatSaved) {
  rendezvous::v1::GetStatusReply reply = Sample();
  auto* job = reply.mutable_jobs(0);
  auto* training = job->add_ledger();
  training->set_cause("training");
  training->set_us(10'000'000);
  auto* warm = job->mutable_history(0)->mutable_warm();
  warm->set_cold_workers(2);
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr(", steps 1 to 30, 0 of 2 warm; began: "));
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr("%: training 10.0 s\n"));
  warm->set_warm_workers(2);
  warm->set_saved_ms(2300);
  *job->add_history() = job->history(0);
  const std::string text = StatusText(reply, "h:1");
  EXPECT_THAT(text, HasSubstr(", steps 1 to 30, 2 of 4 warm (2.3 s saved); began: "));
  EXPECT_THAT(text, HasSubstr("goodput 100.0 %: training 10.0 s; warm starts saved 4.6 s\n"));
}

TEST(StatusText, ShowsHowWorkersStart) {
  rendezvous::v1::GetStatusReply reply = Sample();
  EXPECT_THAT(StatusText(reply, "h:1"), Not(HasSubstr("warm")));
  auto* warm = reply.mutable_jobs(0)->mutable_nodes(0)->mutable_warm();
  warm->set_why_cold("what the script imports was not known yet");
  EXPECT_THAT(
      StatusText(reply, "h:1"),
      HasSubstr("\n         warm: none parked (what the script imports was not known yet)\n"));
  // The reason is for these workers; the next ones would be warm.
  warm->set_cold_workers(2);
  warm->set_parked_bytes(213 << 20);
  EXPECT_THAT(
      StatusText(reply, "h:1"),
      HasSubstr("\n         warm: 0 of 2 workers (what the script imports was not known yet); "
                "213.0 MiB parked\n"));
  warm->clear_why_cold();
  warm->clear_cold_workers();
  warm->set_warm_workers(2);
  warm->set_saved_ms(1800);
  warm->set_parked_bytes(213 << 20);
  EXPECT_THAT(StatusText(reply, "h:1"),
              HasSubstr("\n         warm: 2 of 2 workers, 1.8 s saved; 213.0 MiB parked\n"));
}

TEST(StatusText, ShowsTheMemoryOfCheckpoints) {
  rendezvous::v1::GetStatusReply reply = Sample();
  EXPECT_THAT(StatusText(reply, "h:1"), Not(HasSubstr("checkpoints in memory")));
  reply.mutable_jobs(0)->mutable_nodes(0)->set_checkpoint_bytes(uint64_t{3} << 29);
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr("\n         checkpoints in memory: 1.5 GiB\n"));
}

TEST(StatusText, SumsUpWarmStartsOfAllNodes) {
  rendezvous::v1::GetStatusReply reply = Sample();
  EXPECT_THAT(StatusText(reply, "h:1"), Not(HasSubstr("warm start")));
  for (const uint32_t warm : {2U, 1U}) {
    auto* told = reply.mutable_jobs(0)->add_nodes()->mutable_warm();
    told->set_warm_workers(warm);
    told->set_cold_workers(2 - warm);
    told->set_saved_ms(warm * 1000);
    told->set_parked_bytes(uint64_t{100} << 20);
  }
  EXPECT_THAT(
      StatusText(reply, "h:1"),
      HasSubstr("\n  warm start of generation 2: 3 of 4 workers, 2.0 s saved; 200.0 MiB parked\n"));
}

TEST(StatusText, ShowsWhatWorkersReportOfTheTraining) {
  rendezvous::v1::GetStatusReply reply = Sample();
  EXPECT_THAT(StatusText(reply, "h:1"), Not(HasSubstr("loss")));
  auto* training = reply.mutable_jobs(0)->mutable_nodes(0)->mutable_training();
  training->set_samples_per_second(40'000);
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr("\n  40000 samples/s\n"));
  training->set_loss(2.3125);
  training->set_loss_workers(2);
  training->set_samples_per_second(1.5);
  EXPECT_THAT(StatusText(reply, "h:1"), HasSubstr("\n  loss 2.312; 1.50 samples/s\n"));
}

TEST(StatusText, ShowsWhatEachGenerationWas) {
  EXPECT_THAT(StatusText(Sample(), "h:1"),
              HasSubstr("      1  2 ranks on 1 node, lasted 1 h 0 min, steps 1 to 30; began: 1 "
                        "node came together (rule all_nodes)\n"
                        "         ended 2 min 5 s ago: worker rank 1 failed\n"));
}

TEST(NodeStateText, SaysSinceWhenAndForHowLongTheServiceIsMissed) {
  agent::v1::NodeState node;
  node.set_run_id("job7");
  node.set_description("train.py");
  node.set_node_id("n2");
  node.set_endpoint("n1:29400");
  node.set_state("running");
  node.set_generation(3);
  node.mutable_absence()->set_for_ms(12000);
  node.mutable_absence()->set_why("silent for 5s");
  node.mutable_absence()->set_gives_up_in_ms(78000);
  node.mutable_absence()->set_workers_go_on(true);
  EXPECT_EQ(NodeStateText(node),
            "job job7: no answer of the rendezvous service at n1:29400 for 12.0 s (silent for "
            "5s)\n  train.py\n"
            "  node n2 of this machine: running, generation 3; its workers need no service\n"
            "  the service is tried for 1 min 18 s more, then this node ends\n");
  node.mutable_absence()->clear_gives_up_in_ms();
  node.mutable_absence()->clear_why();
  node.mutable_absence()->set_workers_go_on(false);
  EXPECT_THAT(NodeStateText(node), HasSubstr("for 12.0 s\n  train.py\n"));
  EXPECT_THAT(NodeStateText(node), HasSubstr("; its workers can't go on without it\n"));
  EXPECT_THAT(NodeStateText(node), HasSubstr("\n  the service is tried without a bound\n"));
}

TEST(StatusText, ANodeWithoutMarksHasDashes) {
  auto reply = Sample();
  reply.mutable_jobs(0)->mutable_nodes(0)->clear_workers();
  reply.mutable_jobs(0)->mutable_nodes(0)->clear_step_us();
  EXPECT_THAT(StatusText(reply, "h:1"),
              HasSubstr("120 ms  -                    -  -            10"));
}

TEST(StatusText, OfManyGenerationsTheLastOnesAreShown) {
  auto reply = Sample();
  for (uint64_t i = 2; i <= 15; ++i) reply.mutable_jobs(0)->add_history()->set_generation(i);
  const std::string text = StatusText(reply, "h:1");
  EXPECT_THAT(text, HasSubstr("      …  5 more before (see -o wide)\n      6  "));
  EXPECT_THAT(text, Not(HasSubstr("\n      5  ")));
}

}  // namespace
}  // namespace ddprun::launcher
