// What a step of Slurm says, and what the command line says against it (docs/SLURM.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// As srun of Slurm 22.05 sets them on the second of two nodes with four GPUs and one task each.
Variables Step() {
  return {{"SLURM_JOB_ID", "123"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[01-02]"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
          {"SLURM_NODEID", "1"},
          {"SLURM_PROCID", "1"},
          {"SLURM_LOCALID", "0"},
          {"SLURMD_NODENAME", "n02"},
          {"SLURM_GPUS_ON_NODE", "4"},
          {"SLURM_STEP_GPUS", "0,1,2,3"},
          {"SLURM_CPUS_ON_NODE", "4"}};
}

Variables With(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}
Variables FirstNode() { return With(Step(), {{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "0"}}); }

TEST(SlurmStepOfNodes, NothingHasToBeNamed) {
  const LaunchPlan plan = PlanOf("train.py", Step());
  EXPECT_EQ(plan.job.nodes_min, 2);
  EXPECT_EQ(plan.job.nodes_max, 2);
  EXPECT_EQ(plan.worker_count, 4);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.job.run_id, "123.0");
  EXPECT_EQ(plan.endpoint.host, "n01");
  EXPECT_GE(plan.endpoint.port, 15000);
  EXPECT_LT(plan.endpoint.port, 29000);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_EQ(plan.omp_threads, 1);  // 4 CPUs for 4 workers
  EXPECT_EQ(plan.node_socket, "");

  const LaunchPlan first = PlanOf("train.py", FirstNode());
  EXPECT_EQ(first.node_rank, 0);
  EXPECT_EQ(first.endpoint.host, plan.endpoint.host);
  EXPECT_EQ(first.endpoint.port, plan.endpoint.port);
  EXPECT_EQ(first.endpoint.hosting, EndpointPlan::Hosting::kAlways);
}

TEST(SlurmStepOfNodes, OneLineTellsWhatWasFound) {
  const CommandLine first = Parse({"train.py"}, FirstNode());
  ASSERT_THAT(first.notes, SizeIs(1));
  EXPECT_THAT(first.notes[0], HasSubstr("Slurm: job 123.0, 2 nodes of n01,n02, 4 workers on each "
                                        "with 4 CPUs, rendezvous at n01:"));
  EXPECT_THAT(Parse({"train.py"}, Step()).notes, IsEmpty());
  EXPECT_THAT(first.warnings, IsEmpty());
}

TEST(SlurmStepOfNodes, SlurmHasTheAddressOfANameThatDoesNotResolve) {
  FakeHost host;
  host.slurm_addresses["n01"] = "fd00::1";
  const LaunchPlan plan = PlanOf("train.py", Step(), host);
  EXPECT_EQ(plan.endpoint.host, "fd00::1");
  EXPECT_EQ(plan.endpoint.port, PlanOf("train.py", Step()).endpoint.port);
  EXPECT_EQ(plan.service.unknown_name, absl::Seconds(10));
  EXPECT_THAT(plan.endpoint.name_hint, HasSubstr("scontrol show node n01"));
  const LaunchPlan own = PlanOf("--rdzv_endpoint n01:1 train.py", Step(), host);
  EXPECT_EQ(own.endpoint.host, "n01");
  EXPECT_EQ(own.service.unknown_name, absl::InfiniteDuration());
}

TEST(SlurmStepOfNodes, AllAgentsOfTheStepAreExpected) {
  EXPECT_EQ(PlanOf("--nnodes 1 train.py", Step()).job.agents_started, 0);
  const LaunchPlan plan = PlanOf("--nnodes 1:2 train.py", Step());
  EXPECT_EQ(plan.job.agents_started, 2);
  EXPECT_EQ(plan.ending.late_agents, absl::Seconds(60));
  EXPECT_EQ(PlanOf("--rdzv_id mine train.py", Step()).job.agents_started, 0)
      << "other steps may share it";
}

TEST(SlurmStepOfNodes, ALoneNodeHasTheCure) {
  EXPECT_THAT(
      PlanOf("train.py", FirstNode()).endpoint.alone_hint,
      AllOf(HasSubstr("srun --overlap --ntasks-per-node=1 ddprun"), HasSubstr("--no_slurm")));
  EXPECT_EQ(
      PlanOf("train.py", With(FirstNode(), {{"PET_RDZV_ENDPOINT", "n01:1"}})).endpoint.alone_hint,
      "")
      << "the user says where the nodes meet";
}

TEST(SlurmStepOfNodes, ARequeuedJobIsAnotherOne) {
  const Variables again = With(Step(), {{"SLURM_RESTART_COUNT", "2"}});
  const LaunchPlan plan = PlanOf("train.py", again);
  EXPECT_EQ(plan.job.run_id, "123.0-restart2");
  EXPECT_NE(plan.endpoint.port, PlanOf("train.py", Step()).endpoint.port);
}

TEST(SlurmStepOfNodes, TheCommandLineWins) {
  const LaunchPlan plan = PlanOf(
      "--nnodes 1:2 --nproc_per_node 2 --rdzv_endpoint host0:5000 --rdzv_id mine --omp_threads 3 "
      "train.py",
      Step());
  EXPECT_EQ(plan.job.nodes_min, 1);
  EXPECT_EQ(plan.worker_count, 2);
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.endpoint.port, 5000);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAuto);
  EXPECT_EQ(plan.job.run_id, "mine");
  EXPECT_EQ(plan.omp_threads, 3);
  EXPECT_EQ(plan.node_rank, 1);  // still Slurm's

  // The way of torchrun's manuals: head node by name, numbers from Slurm.
  const LaunchPlan fixed =
      PlanOf("--nnodes 2 --master_addr host0 --master_port 7000 train.py", Step());
  EXPECT_EQ(fixed.rdzv_backend, "static");
  EXPECT_EQ(fixed.node_rank, 1);
  EXPECT_EQ(fixed.endpoint.port, 7000);

  const LaunchPlan standalone = PlanOf("--standalone train.py", Step());
  EXPECT_EQ(standalone.job.nodes_max, 1);
  EXPECT_EQ(standalone.worker_count, 4);
  EXPECT_EQ(standalone.endpoint.kind, EndpointPlan::Kind::kUnix);
}

TEST(SlurmStepOfNodes, NoSlurmIsNoSlurm) {
  const LaunchPlan plan = PlanOf("--no_slurm train.py", Step());
  EXPECT_EQ(plan.job.nodes_max, 1);
  EXPECT_EQ(plan.worker_count, 1);
  EXPECT_EQ(plan.job.run_id, FakeHost().RandomId());
  EXPECT_EQ(PlanOf("train.py", With(Step(), {{"PET_NO_SLURM", "1"}})).job.run_id,
            FakeHost().RandomId());
  // salloc's shell has the job's variables, but no step's, and is on no node of it.
  EXPECT_EQ(PlanOf("train.py", {{"SLURM_JOB_ID", "123"}, {"SLURM_JOB_NUM_NODES", "2"}}).job.run_id,
            FakeHost().RandomId());
}

TEST(SlurmStepOfNodes, MoreNodesThanTheJobTakesAreSpares) {
  const CommandLine parsed =
      Parse({"--nnodes", "2", "train.py"}, With(Step(), {{"SLURM_STEP_NODELIST", "n[1-3]"},
                                                         {"SLURM_STEP_NUM_NODES", "3"},
                                                         {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                                                         {"SLURM_STEP_NUM_TASKS", "3"},
                                                         {"SLURM_NODEID", "2"},
                                                         {"SLURM_PROCID", "2"}}));
  EXPECT_EQ(PlanOf(parsed).node_rank, std::nullopt);
  EXPECT_EQ(PlanOf(parsed).job.nodes_max, 2);
  EXPECT_EQ(PlanOf(parsed).endpoint.host, "n1");
  EXPECT_THAT(parsed.warnings, IsEmpty());
}

// Slurm numbers nodes and tasks over all components of a heterogeneous step.
TEST(SlurmStepOfNodes, HeterogeneousSteps) {
  const Variables together = With(Step(), {{"SLURM_HET_SIZE", "2"},
                                           {"SLURM_STEP_NODELIST", "n[1-3]"},
                                           {"SLURM_STEP_NUM_NODES", "3"},
                                           {"SLURM_STEP_TASKS_PER_NODE", "1,3,1"},
                                           {"SLURM_STEP_NUM_TASKS", "5"},
                                           {"SLURM_PROCID", "1"},
                                           {"SLURM_GPUS_ON_NODE", ""},
                                           {"SLURM_STEP_GPUS", ""}});
  const LaunchPlan plan = PlanOf("train.py", together);
  EXPECT_EQ(plan.job.nodes_max, 3);
  EXPECT_EQ(plan.worker_count, 3);
  EXPECT_EQ(plan.node_rank, 1);

  // The same where the step's list names one component.
  const LaunchPlan pieces =
      PlanOf("train.py", With(together, {{"SLURM_STEP_NODELIST", "n[2-3]"},
                                         {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
                                         {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"}}));
  EXPECT_EQ(pieces.job.nodes_max, 3);
  EXPECT_EQ(pieces.endpoint.host, "n1");
}

// One task for each worker: the first of a node launches, the others wait.
TEST(SlurmTasks, TheFirstOfANodeLaunches) {
  const Variables tasks = With(Step(), {{"SLURM_STEP_TASKS_PER_NODE", "3,2"},
                                        {"SLURM_STEP_NUM_TASKS", "5"},
                                        {"SLURM_PROCID", "3"},
                                        {"SLURM_GPUS_ON_NODE", ""},
                                        {"SLURM_STEP_GPUS", ""}});
  const LaunchPlan plan = PlanOf("train.py", tasks);
  EXPECT_EQ(plan.job.nodes_max, 2);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.worker_count, 2);
  EXPECT_EQ(plan.node_socket, "ddprun-slurm-123.0-1");

  const CommandLine second =
      Parse({"train.py"}, With(tasks, {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}}));
  const auto* wait = std::get_if<WaitForNode>(&second.command);
  ASSERT_NE(wait, nullptr);
  EXPECT_EQ(wait->node_socket, plan.node_socket);
  EXPECT_THAT(second.notes, IsEmpty());
}

TEST(SlurmTasks, TasksThatWereNamedAsNodesAreNodes) {
  const Variables tasks = With(Step(), {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                        {"SLURM_STEP_NUM_TASKS", "4"},
                                        {"SLURM_PROCID", "3"},
                                        {"SLURM_LOCALID", "1"}});
  for (const char* line :
       {"--nnodes 4 --nproc_per_node 1 train.py",
        "--nnodes 4 --node_rank 3 --rdzv_endpoint h:1 --nproc_per_node 1 train.py"}) {
    const LaunchPlan plan = PlanOf(line, tasks);
    EXPECT_EQ(plan.node_rank, 3) << line;
    EXPECT_EQ(plan.node_socket, "") << line;
    EXPECT_EQ(plan.worker_count, 1) << line;
  }
  EXPECT_EQ(PlanOf("--standalone train.py", tasks).node_socket, "");
}

TEST(SlurmTasks, GpusOfSingleTasksAreRefused) {
  const Variables own = With(Step(), {{"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                                      {"SLURM_STEP_NUM_TASKS", "8"},
                                      {"SLURM_STEP_GPUS", "1"}});
  ExpectRefused({"train.py", 1, "srun --ntasks-per-node=1 --gpus-per-node=4 ddprun"}, own);
}

TEST(SlurmCpus, AreThoseOfTheStep) {
  EXPECT_EQ(PlanOf("--nproc_per_node 2 train.py", Step()).omp_threads, 2);
  EXPECT_EQ(PlanOf("--nproc_per_node cpu train.py", Step()).worker_count, 4);
  // No more than the process may use.
  EXPECT_EQ(PlanOf("--nproc_per_node 2 train.py", With(Step(), {{"SLURM_CPUS_ON_NODE", "64"}}))
                .omp_threads,
            3);
  EXPECT_EQ(PlanOf("train.py", With(Step(), {{"OMP_NUM_THREADS", "7"}})).omp_threads, std::nullopt);
  // srun's well-known trap.
  const CommandLine trapped = Parse(
      {"train.py"}, With(Step(), {{"SLURM_CPUS_PER_TASK", "32"}, {"SLURM_CPUS_ON_NODE", "1"}}));
  ASSERT_THAT(trapped.warnings, SizeIs(1));
  EXPECT_THAT(trapped.warnings[0], HasSubstr("export SRUN_CPUS_PER_TASK=32"));
}

TEST(SlurmLimit, EndsThePlan) {
  FakeHost host;
  host.time_left = absl::Hours(2);
  EXPECT_EQ(PlanOf("train.py", FirstNode(), host).signals.preemption.after, absl::Hours(2));
  // One asks for all.
  EXPECT_EQ(PlanOf("train.py", Step(), host).signals.preemption.after, absl::InfiniteDuration());
  EXPECT_EQ(PlanOf("--preempt_after 1h train.py", FirstNode(), host).signals.preemption.after,
            absl::Hours(1));
  EXPECT_EQ(PlanOf("--preempt_signals USR1 train.py", FirstNode(), host).signals.preemption.after,
            absl::InfiniteDuration());
  const Variables newer = With(FirstNode(), {{"SLURM_JOB_END_TIME", "1000300"}});
  EXPECT_EQ(PlanOf("train.py", newer, host).signals.preemption.after, absl::Minutes(5));
  EXPECT_THAT(Parse({"train.py"}, newer, host).notes, ElementsAre(HasSubstr("5m left")));

  host.time_left = absl::Seconds(20);
  const CommandLine late = Parse({"train.py"}, FirstNode(), host);
  EXPECT_EQ(PlanOf(late).signals.preemption.after, absl::InfiniteDuration());
  EXPECT_THAT(late.warnings, ElementsAre(HasSubstr("too short to stop and save")));
}

// The first node has the batch script and the service (docs/SLURM.md).
TEST(SlurmRequeue, IsWhatTheOtherNodesDoWhenTheScriptAsksForIt) {
  EXPECT_EQ(PlanOf("train.py", Step()).requeue_job, "");
  const Variables asked = {{"DDPRUN_SLURM_REQUEUE", "1"}};
  EXPECT_EQ(PlanOf("train.py", With(Step(), asked)).requeue_job, "123");
  EXPECT_EQ(PlanOf("train.py", With(FirstNode(), asked)).requeue_job, "");
}

// docs/SLURM.md, "Time, signals, requeue".
TEST(SlurmRequeue, IsCountedWhereTheScriptSaysHowOften) {
  EXPECT_EQ(PlanOf("train.py", FirstNode()).requeues.job, "");
  const Variables asked = {{"DDPRUN_SLURM_GIVE_UP_AFTER", "3"}};
  const LaunchPlan plan = PlanOf("train.py", With(FirstNode(), asked));
  EXPECT_EQ(plan.requeues.job, "123");
  EXPECT_EQ(plan.requeues.give_up_after, 3);
  EXPECT_EQ(PlanOf("train.py", With(Step(), asked)).requeues.job, "") << "once a run";
  EXPECT_EQ(
      PlanOf("train.py", With(FirstNode(), {{"DDPRUN_SLURM_GIVE_UP_AFTER", "0"}})).requeues.job,
      "");
}

TEST(SlurmStatusFile, IsTheFirstNodes) {
  const Variables asked = {{"DDPRUN_SLURM_STATUS_FILE", "/tmp/status"}};
  EXPECT_EQ(PlanOf("train.py", With(FirstNode(), asked)).requeues.status_file, "/tmp/status");
  EXPECT_EQ(PlanOf("train.py", With(Step(), asked)).requeues.status_file, "");
  EXPECT_EQ(PlanOf("train.py", FirstNode()).requeues.status_file, "");
}

// `srun ddprun doctor` is one report.
TEST(SlurmReports, AreOfAllNodesOfTheStep) {
  const auto nodes = [](const char* line, const Variables& variables) -> uint32_t {
    const CommandLine parsed = Parse(Words(line), variables);
    const auto* plan = std::get_if<LaunchPlan>(&parsed.command);
    return plan == nullptr ? 0 : plan->job.nodes_max;
  };
  EXPECT_EQ(nodes("doctor", Step()), 2);
  EXPECT_EQ(nodes("env --json", FirstNode()), 2);
  EXPECT_EQ(nodes("doctor --nnodes 1", Step()), 1);
  EXPECT_EQ(nodes("doctor", {}), 0);
  EXPECT_EQ(nodes("doctor", With(Step(), {{"PET_NO_SLURM", "1"}})), 0);
  EXPECT_EQ(nodes("doctor", With(FirstNode(), {{"SLURM_PTY_PORT", "4711"}})), 0)
      << "the shell of srun --pty is on one node";
  EXPECT_EQ(nodes("doctor", With(Step(), {{"SLURM_STEP_NODELIST", "n["}})), 0);
}

TEST(SlurmScript, OfOneNodeIsUnderstoodOfMoreIsWarnedOf) {
  Variables script = {{"SLURM_JOB_ID", "7"},        {"SLURMD_NODENAME", "n3"},
                      {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_GPUS_ON_NODE", "2"},
                      {"SLURM_CPUS_ON_NODE", "4"},  {"SLURM_NODEID", "0"}};
  const LaunchPlan plan = PlanOf("train.py", script);
  EXPECT_EQ(plan.job.run_id, "7");
  EXPECT_EQ(plan.worker_count, 2);
  EXPECT_EQ(plan.endpoint.kind, EndpointPlan::Kind::kUnix);

  script["SLURM_JOB_NUM_NODES"] = "2";
  EXPECT_THAT(Parse({"train.py"}, script).warnings, ElementsAre(HasSubstr("write srun before it")));
  EXPECT_THAT(Parse({"--standalone", "train.py"}, script).warnings, IsEmpty());
}

TEST(SlurmRefusals, NameTheVariableAndTheWayOut) {
  const std::pair<const char*, const char*> kBad[] = {
      {"SLURM_STEP_NODELIST", "n[1-"},      {"SLURM_NODEID", "9"},    {"SLURM_NODEID", "x"},
      {"SLURM_STEP_TASKS_PER_NODE", "a"},   {"SLURM_JOB_ID", "../x"}, {"SLURM_STEP_NUM_NODES", "3"},
      {"SLURM_STEP_NODELIST", "n[0-99999]"}};
  for (const auto& [name, value] : kBad) {
    const Variables bad = With(Step(), {{name, value}});
    ExpectRefused({"train.py", 1, name}, bad);
    ExpectRefused({"train.py", 1, "--no_slurm makes ddprun ignore"}, bad);
    EXPECT_EQ(PlanOf("--no_slurm train.py", bad).job.run_id, FakeHost().RandomId());
  }
}

}  // namespace
}  // namespace ddprun::launcher
