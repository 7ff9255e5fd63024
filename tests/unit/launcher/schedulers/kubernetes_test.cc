// What a pod's variables say, and what the command line says against it (docs/KUBERNETES.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "launcher/schedulers/kubernetes.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As kubelet sets them in the second of two pods of the indexed Job "train" with a headless
// Service.
Variables PodOf(const Variables& others) {
  Variables variables = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"JOB_COMPLETION_INDEX", "1"}};
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}
Variables SecondPod() { return PodOf({{"PET_NNODES", "2"}}); }
Variables FirstPod() { return PodOf({{"PET_NNODES", "2"}, {"JOB_COMPLETION_INDEX", "0"}}); }

FakeHost PodHost(const std::string& name = "train-1") {
  FakeHost host;
  host.hostname = name;
  host.files["/etc/hosts"] =
      "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.244.1.5\t" + name +
      ".train.default.svc.cluster.local\t" + name + "\n";
  return host;
}

TEST(KubernetesIndexedJob, OnlyTheNumberOfNodesIsNamed) {
  const LaunchPlan plan = PlanOf("train.py", SecondPod(), PodHost());
  EXPECT_EQ(plan.job.nodes_min, 2);
  EXPECT_EQ(plan.job.nodes_max, 2);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.job.run_id, "train");
  EXPECT_EQ(plan.endpoint.host, "train-0.train.default.svc.cluster.local");
  EXPECT_EQ(plan.endpoint.port, 29400);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_EQ(plan.rdzv_backend, "c10d");
  EXPECT_EQ(plan.worker_count, 1);

  const LaunchPlan first = PlanOf("train.py", FirstPod(), PodHost("train-0"));
  EXPECT_EQ(first.node_rank, 0);
  EXPECT_EQ(first.endpoint.host, plan.endpoint.host);
  EXPECT_EQ(first.endpoint.hosting, EndpointPlan::Hosting::kAlways);
}

TEST(KubernetesIndexedJob, OneLineTellsWhatWasFound) {
  const CommandLine first = Parse({"train.py"}, FirstPod(), PodHost("train-0"));
  EXPECT_THAT(first.notes, ElementsAre(HasSubstr(
                               "Kubernetes: pod 0 of train, 2 nodes, 1 worker on each, "
                               "rendezvous at train-0.train.default.svc.cluster.local:29400")));
  EXPECT_THAT(first.warnings, IsEmpty());
  EXPECT_THAT(Parse({"train.py"}, SecondPod(), PodHost()).notes, IsEmpty());
}

TEST(KubernetesIndexedJob, WorkersAreThePodsGpus) {
  FakeHost host = PodHost();
  host.gpus = 4;
  EXPECT_EQ(PlanOf("train.py", SecondPod(), host).worker_count, 4);
  EXPECT_EQ(PlanOf("--nproc_per_node 2 train.py", SecondPod(), host).worker_count, 2);
}

TEST(KubernetesIndexedJob, TheCommandLineWins) {
  const LaunchPlan plan = PlanOf("--nnodes 1:3 --rdzv_endpoint host0:5000 --rdzv_id mine train.py",
                                 SecondPod(), PodHost());
  EXPECT_EQ(plan.job.nodes_min, 1);
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAuto);
  EXPECT_EQ(plan.job.run_id, "mine");
  EXPECT_EQ(plan.node_rank, 1);  // still the pod's

  const LaunchPlan fixed =
      PlanOf("--master_addr host0 --master_port 7000 train.py", SecondPod(), PodHost());
  EXPECT_EQ(fixed.rdzv_backend, "static");
  EXPECT_EQ(fixed.node_rank, 1);
  EXPECT_EQ(fixed.endpoint.port, 7000);
}

TEST(KubernetesIndexedJob, NoKubernetesIsNoKubernetes) {
  const Variables pod = PodOf({});
  EXPECT_EQ(PlanOf("--no_kubernetes --nnodes 1 train.py", pod, PodHost()).job.run_id,
            FakeHost().RandomId());
  EXPECT_EQ(
      PlanOf("--nnodes 1 train.py", PodOf({{"PET_NO_KUBERNETES", "1"}}), PodHost()).job.run_id,
      FakeHost().RandomId());
  EXPECT_EQ(PlanOf("--nnodes 1 train.py", pod, PodHost()).job.run_id, "train");
  EXPECT_EQ(PlanOf("--standalone train.py", pod, PodHost()).endpoint.kind,
            EndpointPlan::Kind::kUnix);
  // Others have such a variable too.
  EXPECT_EQ(PlanOf("--nnodes 1 train.py", {{"JOB_COMPLETION_INDEX", "1"}}, PodHost()).job.run_id,
            FakeHost().RandomId());
}

TEST(KubernetesIndexedJob, PodsBeyondTheNodesAreSpares) {
  const CommandLine parsed =
      Parse({"train.py"}, PodOf({{"PET_NNODES", "2"}, {"JOB_COMPLETION_INDEX", "2"}}),
            PodHost("train-2"));
  EXPECT_EQ(PlanOf(parsed).node_rank, std::nullopt);
  EXPECT_EQ(PlanOf(parsed).endpoint.host, "train-0.train.default.svc.cluster.local");
  EXPECT_THAT(parsed.warnings, IsEmpty());
}

TEST(KubernetesIndexedJob, AJobWhosePodsKnowEachOtherSaysHowManyTheyAre) {
  EXPECT_THAT(Parse({"train.py"}, PodOf({}), PodHost()).warnings,
              ElementsAre(HasSubstr("set PET_NNODES in the manifest")));
  FakeHost alone = PodHost();
  alone.files["/etc/hosts"] = "10.244.1.5\ttrain-1\n";
  EXPECT_THAT(Parse({"train.py"}, PodOf({}), alone).warnings, IsEmpty());
}

TEST(KubernetesIndexedJob, RefusalsNameTheWayOut) {
  FakeHost alone = PodHost();
  alone.files["/etc/hosts"] = "10.244.1.5\ttrain-1\n";
  ExpectRefused({"train.py", 1, "headless Service of that name"}, SecondPod(), alone);
  EXPECT_EQ(PlanOf("--rdzv_endpoint host0 train.py", SecondPod(), alone).node_rank, 1);
  ExpectRefused({"train.py", 1, "doesn't end with its number"}, SecondPod(), PodHost("worker"));
  ExpectRefused({"train.py", 1, "--no_kubernetes makes ddprun ignore"},
                PodOf({{"JOB_COMPLETION_INDEX", "x"}}), PodHost());
}

// The Jobs of a JobSet's replicated job, each of two pods: "set-workers-1-0" is the third one.
TEST(KubernetesJobSet, NumbersGoOverItsJobs) {
  const Variables third = PodOf({{"PET_NNODES", "4"},
                                 {"JOB_COMPLETION_INDEX", "0"},
                                 {"JOBSET_NAME", "set"},
                                 {"JOBSET_RESTART_ATTEMPT", "0"},
                                 {"JOB_INDEX", "1"},
                                 {"REPLICATED_JOB_REPLICAS", "2"}});
  const LaunchPlan plan = PlanOf("train.py", third, PodHost("set-workers-1-0"));
  EXPECT_EQ(plan.node_rank, 2);
  EXPECT_EQ(plan.endpoint.host, "set-workers-0-0.train.default.svc.cluster.local");
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_EQ(plan.job.run_id, "set");

  Variables again = third;
  again["JOBSET_RESTART_ATTEMPT"] = "2";
  EXPECT_EQ(PlanOf("train.py", again, PodHost("set-workers-1-0")).job.run_id, "set-restart2");
  again["PET_NNODES"] = "3";
  ExpectRefused({"train.py", 1, "can't be divided among so many Jobs"}, again,
                PodHost("set-workers-1-0"));

  // One Job needs no more than an indexed Job alone does.
  const LaunchPlan one = PlanOf("train.py", SecondPod(), PodHost("set-workers-0-1"));
  EXPECT_EQ(one.endpoint.host, "set-workers-0-0.train.default.svc.cluster.local");
  EXPECT_EQ(one.job.run_id, "set-workers-0");
}

// As training-operator 1.5 sets them: RANK and WORLD_SIZE count pods.
Variables Replica(const std::string& rank) {
  return {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
          {"MASTER_ADDR", rank == "0" ? "localhost" : "mnist-master-0"},
          {"MASTER_PORT", "23456"},
          {"WORLD_SIZE", "3"},
          {"RANK", rank}};
}

TEST(KubernetesPyTorchJob, RankIsTheNodes) {
  FakeHost host;
  host.gpus = 2;
  const LaunchPlan worker = PlanOf("train.py", Replica("2"), host);
  EXPECT_EQ(worker.job.nodes_max, 3);
  EXPECT_EQ(worker.node_rank, 2);
  EXPECT_EQ(worker.worker_count, 2);
  EXPECT_EQ(worker.endpoint.host, "mnist-master-0");
  EXPECT_EQ(worker.endpoint.port, 23456);

  host.hostname = "mnist-master-0";
  const CommandLine master = Parse({"train.py"}, Replica("0"), host);
  EXPECT_EQ(PlanOf(master).endpoint.host, "mnist-master-0");
  EXPECT_THAT(master.notes, ElementsAre(HasSubstr("the master of a PyTorchJob, 3 nodes")));
}

TEST(KubernetesPyTorchJob, WorkersOfOtherLaunchersAndOtherPlacesAreNone) {
  Variables worker = Replica("1");
  worker["LOCAL_RANK"] = "1";
  EXPECT_EQ(PlanOf("train.py", worker).job.nodes_max, 1);
  Variables elsewhere = Replica("1");
  elsewhere.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(PlanOf("train.py", elsewhere).job.nodes_max, 1);
  EXPECT_EQ(PlanOf("--no_kubernetes train.py", Replica("1")).job.nodes_max, 1);
  Variables bad = Replica("1");
  bad["WORLD_SIZE"] = "many";
  ExpectRefused({"train.py", 1, "WORLD_SIZE 'many'"}, bad);
}

// As training-operator 1.7 and later (PyTorchJob) and Kubeflow Trainer 2 (TrainJob, over a JobSet).
TEST(KubernetesPyTorchJob, NewerOperatorsSayItInTorchrunsVariables) {
  Variables newer = Replica("1");
  newer["WORLD_SIZE"] = "6";  // 3 pods of 2 workers
  newer["PET_NNODES"] = "3";
  newer["PET_NPROC_PER_NODE"] = "2";
  newer["PET_NODE_RANK"] = "1";
  newer["PET_MASTER_ADDR"] = "mnist-master-0";
  newer["PET_MASTER_PORT"] = "23456";
  const LaunchPlan plan = PlanOf("train.py", newer);
  EXPECT_EQ(plan.job.nodes_max, 3);
  EXPECT_EQ(plan.node_rank, 1);
  EXPECT_EQ(plan.worker_count, 2);
  EXPECT_EQ(plan.endpoint.port, 23456);

  const CommandLine trainer = Parse({"train.py"},
                                    PodOf({{"PET_NNODES", "2"},
                                           {"PET_NPROC_PER_NODE", "1"},
                                           {"PET_NODE_RANK", "1"},
                                           {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                           {"PET_MASTER_PORT", "29500"}}),
                                    PodHost("job-node-0-1"));
  EXPECT_EQ(PlanOf(trainer).rdzv_backend, "static");
  EXPECT_EQ(PlanOf(trainer).endpoint.host, "job-node-0-0.job");
  EXPECT_EQ(PlanOf(trainer).node_rank, 1);
  EXPECT_THAT(trainer.warnings, IsEmpty());
}

TEST(KubernetesHostsFile, TheDomainIsBehindTheName) {
  EXPECT_EQ(DomainOfHost("10.0.0.1\ta-1.b.svc\ta-1\n", "a-1"), "b.svc");
  EXPECT_EQ(DomainOfHost("10.0.0.1 a-1\n", "a-1"), "");
  EXPECT_EQ(DomainOfHost("10.0.0.1 a-11.b.svc a-1\n", "a-1"), "");
  EXPECT_EQ(DomainOfHost("10.0.0.1 a-1.b.svc\n", ""), "");
  EXPECT_EQ(DomainOfHost("# 10.0.0.1 a-1.b.svc\n", "a-1"), "");
}

}  // namespace
}  // namespace ddprun::launcher
