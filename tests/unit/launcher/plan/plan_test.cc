// What the words mean, as in torchrun: checks 4-13, 18-23, 26, 28-36 of tests/contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Refusals, SizesAndWorkers) {
  const Refused kCases[] = {
      // 4
      {"--nnodes=0 train.py", 1, "--nnodes '0': a job needs at least 1 node"},
      {"--nnodes=-1 train.py", 1, "--nnodes '-1': a job needs at least 1 node"},
      {"--nnodes=3:2 train.py", 1, "--nnodes '3:2': MIN is greater than MAX; did you mean 2:3?"},
      {"--nnodes=1:2:3 train.py", 1, "--nnodes '1:2:3': is not a number of nodes"},
      {"--nnodes=a train.py", 1, "--nnodes 'a': is not a number of nodes"},
      {"--nnodes=1: train.py", 1, "--nnodes '1:'"},
      {"--nnodes=99999 train.py", 1, "at most 16384 nodes"},
      {"--nnodes=16385:99999 train.py", 1, "at most 16384 nodes"},
      // 5, 6, 7
      {"--nproc-per-node=0 train.py", 1, "--nproc-per-node '0': must be from 1 to 4096"},
      {"--nproc_per_node=-2 train.py", 1, "must be from 1"},
      {"--nproc-per-node=foo train.py", 1, "--nproc-per-node 'foo': is not a number of workers"},
      {"--nproc-per-node=gpu train.py", 1, "Cuda is not available"},
      // 10, 11
      {"--max-restarts=-1 train.py", 1, "--max-restarts '-1': must be from 0"},
      {"--max-restarts=x train.py", 2, "--max-restarts 'x': is not a whole number"},
      {"--monitor-interval=0 train.py", 1, "--monitor-interval '0'"},
      {"--monitor-interval=x train.py", 2, "is not a number of seconds"},
      {"--monitor-interval=nan train.py", 2, "is not a number of seconds"},
      // 20, 22
      {"--no-python -m train.py", 1, "--module and --no_python exclude each other"},
      {"--no-python nosuchbinary", 1, "can't run the program: 'nosuchbinary'"},
      // 26
      {"-r 4 train.py", 1, "-r '4': give 0 (none), 1 (stdout)"},
      {"-r 0:1, train.py", 1, "-r '0:1,'"},
      {"--tee 0:4 train.py", 1, "--tee '0:4'"},
      {"-t 0:12 train.py", 1, "-t '0:12'"},
      {"-t 3-1:1 train.py", 1, "-t '3-1:1'"},
      {"-t -3:1,0:1 train.py", 2, "-t needs a value"},
      {"-t=-3:1,0:1 train.py", 1, "-t '-3:1,0:1'"},
      {"-t 0-5000:1 train.py", 1, "-t '0-5000:1'"},
      {"-t ::1 train.py", 1, "-t '::1'"},
      {"-t -1:1 train.py", 2, "-t needs a value"},
      {"--redirects= train.py", 1, "--redirects ''"},
      // 36
      {"--log-dir=train.py train.py", 1, "--log-dir 'train.py': is not a directory"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

TEST(Refusals, Rendezvous) {
  const Refused kCases[] = {
      // 29, 34
      {"--rdzv-conf=a train.py", 1, "'a' is not KEY=VALUE"},
      {"--rdzv-conf==1 train.py", 1, "'=1' is not KEY=VALUE"},
      {"--rdzv-conf=a=b, train.py", 1, "'' is not KEY=VALUE"},
      {"--rdzv-conf is_host=maybe train.py", 1, "--rdzv-conf is_host 'maybe': give true or false"},
      {"--rdzv-conf join_timeout=x train.py", 1, "--rdzv-conf join_timeout 'x'"},
      {"--rdzv-conf join_timeout=0 train.py", 1, "--rdzv-conf join_timeout '0': must be at least"},
      {"--rdzv-conf store_type=foo train.py", 1, "--rdzv-conf store_type 'foo'"},
      {"--rdzv-conf lease=0.001 train.py", 1, "lease must be at least 200ms"},
      // 30
      {"--rdzv-backend=foo train.py", 1, "--rdzv-backend 'foo': is not registered"},
      {"--rdzv-backend= train.py", 1, "is not registered as a backend"},
      // 31, 32
      {"--rdzv-backend=c10d --rdzv-endpoint=localhost:99999 train.py", 1,
       "--rdzv-endpoint 'localhost:99999': '99999' is no port"},
      {"--rdzv-backend=c10d --rdzv-endpoint=localhost: train.py", 1, "is no port"},
      {"--rdzv-backend=c10d --rdzv-endpoint=a/b:1 train.py", 1, "'a/b' is no host name"},
      {"--rdzv-backend=c10d --rdzv-endpoint=:1 train.py", 1, "has no host"},
      {"--rdzv-backend=static --rdzv-endpoint=localhost train.py", 1, "has no port"},
      {"--nnodes 2 --rdzv-endpoint=localhost:0 train.py", 1, "port 0 is any free port"},
      {"--nnodes 2 --master-port=0 train.py", 1, "--master-port '0'"},
      {"--master-port=70000 train.py", 1, "must be from 0 to 65535"},
      {"--master-port=http train.py", 2, "is not a whole number"},
      {"--nnodes 2 --master-addr=a/b train.py", 1, "--master-addr 'a/b'"},
      {"--local-addr=a/b train.py", 1, "--local-addr 'a/b'"},
      // Node ranks.
      {"--nnodes 2 --node-rank 2 train.py", 1,
       "--node-rank '2': the nodes of --nnodes '2' are 0 to 1"},
      {"--node-rank 1 train.py", 1, "--node-rank '1'"},
      {"--nnodes 2 --node-rank -1 train.py", 1, "--node-rank '-1'"},
      {"--nnodes 2 --node-rank x train.py", 2, "--node-rank 'x'"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

TEST(Script, OfAnotherInterpreterIsPythonsBusiness) {
  EXPECT_EQ(PlanOf("uv.py").argv.back(), "uv.py");
}

TEST(Refusals, TimesAndScripts) {
  const Refused kCases[] = {
      // Options that torchrun doesn't have.
      {"--standalone --nnodes 2 train.py", 2, "--standalone is a job of one node"},
      {"--standalone --master_port x train.py", 2, "--master_port 'x'"},
      {"--grace=-1 train.py", 1, "--grace '-1': must be from 0 to"},
      {"--grace=inf train.py", 2, "--grace 'inf'"},
      {"--exit_code=2 train.py", 2, "--exit_code '2': is neither 1 nor worker"},
      {"--lease 1h --isolation_timeout 2 train.py", 1, "must be longer than the lease (1h)"},
      {"--lease 0.001 train.py", 1, "--lease '0.001': must be from 200ms to 168h"},
      {"--rdzv_conf join_timeout=8d train.py", 1, "join_timeout '8d'"},
      {"--rdzv_conf lease=169h train.py", 1, "must be from 1ms to 168h"},
      {"--rdzv_conf last_call_timeout=-1 train.py", 1, "last_call_timeout '-1': must be at least"},
      {"--lease 1 --reconnect_grace 2 train.py", 1, "must not be longer than the lease (1s)"},
      {"--token_file nowhere train.py", 1, "--token_file: 'nowhere': No such file"},
      {"--token_file blank train.py", 1, "the file holds no secret"},
      // The script, after what is wrong anyway
      {"--nproc_per_node 2 --node_rank x nosuch.py", 2, "--node_rank 'x'"},
      {"--lease 0.001 nosuch.py", 1, "--lease '0.001': must be from 200ms"},
      {"nosuch.py", 1, "can't read the script: 'nosuch.py': No such file or directory (errno 2"},
      {"secret.py", 1, "can't read the script: 'secret.py': Permission denied (errno 13, EACCES)"},
      {"empty", 1, "is a directory without a readable __main__.py"},
      {"echo hello", 1, "to run the program of that name add --no_python"},
      {"accelerate launch train.py", 1, "ddprun takes its place: leave that word out"},
      {"torchrun train.py", 1, "ddprun takes its place"},
      {"python train.py", 1, "ddprun starts Python itself: leave that word out"},
      {"run.sh", 1, "script 'run.sh' is a shell script, and not for Python: add --no_python"},
      {"env.sh", 1, "script 'env.sh' is a shell script"},  // #! /usr/bin/env -S A=b bash -eu
      {"a.out", 1, "script 'a.out' is a program, and not for Python: add --no_python"},
      {"--no_python ./train.py", 1, "chmod +x makes it a program, and without --no_python Python"},
      {"--no_python main.cc", 1, "ENOENT); that is source code: compile it, and give the program"},
      {"--no_python a.out", 1, "ENOENT); did you mean ./a.out?"},
      {"--no_python nosuch", 1, "; give its path, or a name in PATH"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

TEST(Plan, HostsWithBlanksAreRefused) {  // 31
  const ExitNow exit = ExitOf(Parse({"--rdzv-backend=c10d", "--rdzv-endpoint=a b:1", "train.py"}));
  EXPECT_EQ(exit.status, 1);
  EXPECT_THAT(exit.text, HasSubstr("'a b' is no host name"));
}

TEST(Plan, Defaults) {
  const LaunchPlan plan = PlanOf("train.py");
  EXPECT_EQ(plan.job.run_id, FakeHost().RandomId());
  EXPECT_EQ(plan.job.nodes_min, 1U);
  EXPECT_EQ(plan.job.nodes_max, 1U);
  EXPECT_EQ(plan.job.max_restarts, 0U);
  EXPECT_EQ(plan.job.join_timeout, absl::Seconds(600));
  EXPECT_EQ(plan.job.last_call_timeout, absl::Seconds(30));
  EXPECT_EQ(plan.job.lease, absl::Seconds(5));
  EXPECT_EQ(plan.job.reconnect_grace, absl::Milliseconds(150));
  EXPECT_EQ(plan.job.stop_grace, absl::Seconds(30));
  EXPECT_EQ(plan.service.loss, absl::Seconds(90));
  EXPECT_EQ(plan.service.loss_without_workers, absl::Seconds(10));
  EXPECT_EQ(plan.isolation_timeout, absl::Seconds(120));
  EXPECT_EQ(plan.endpoint.kind, EndpointPlan::Kind::kUnix);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAlways);
  EXPECT_EQ(plan.node_rank, std::nullopt);
  EXPECT_EQ(plan.worker_count, 1U);
  EXPECT_EQ(plan.role, "default");
  EXPECT_EQ(plan.master_addr, "127.0.0.1");
  EXPECT_EQ(plan.master_port, std::nullopt);
  EXPECT_EQ(plan.token, "");
  EXPECT_THAT(plan.output.stdout_sinks, IsEmpty());
  EXPECT_EQ(plan.output.log_dir, "");
  EXPECT_EQ(plan.event_log, "");
}

TEST(Plan, WorkerCounts) {  // 8, 9
  FakeHost with_gpus;
  with_gpus.gpus = 4;
  EXPECT_EQ(PlanOf("--nproc-per-node=cpu train.py", {}, with_gpus).worker_count, 6U);
  EXPECT_EQ(PlanOf("--nproc-per-node=gpu train.py", {}, with_gpus).worker_count, 4U);
  EXPECT_EQ(PlanOf("--nproc-per-node=auto train.py", {}, with_gpus).worker_count, 4U);
  EXPECT_EQ(PlanOf("--nproc-per-node=auto train.py").worker_count, 6U);
  EXPECT_EQ(PlanOf(Parse({"--nproc-per-node", " +1_0 ", "train.py"})).worker_count, 10U);
}

TEST(Plan, NodeRanges) {
  const LaunchPlan fixed = PlanOf("--nnodes 3 train.py");
  EXPECT_EQ(fixed.job.nodes_min, 3U);
  EXPECT_EQ(fixed.job.nodes_max, 3U);
  const LaunchPlan elastic = PlanOf("--nnodes 2:4 --rdzv_endpoint host0 train.py");
  EXPECT_EQ(elastic.job.nodes_min, 2U);
  EXPECT_EQ(elastic.job.nodes_max, 4U);
}

TEST(Static, NodeZeroHosts) {
  const std::string base = "--nnodes 2 --master_addr host0 --master_port 1234 --node_rank ";
  const LaunchPlan zero = PlanOf(base + "0 train.py");
  EXPECT_EQ(zero.endpoint.kind, EndpointPlan::Kind::kTcp);
  EXPECT_EQ(zero.endpoint.host, "host0");
  EXPECT_EQ(zero.endpoint.port, 1234);
  EXPECT_EQ(zero.endpoint.hosting, EndpointPlan::Hosting::kAlways);
  EXPECT_EQ(zero.node_rank, 0U);
  EXPECT_EQ(zero.master_addr, "host0");
  EXPECT_EQ(zero.master_port, 1234);
  EXPECT_TRUE(zero.endpoint.has_store);
  const CommandLine parsed = Parse(Words(base + "1 train.py"));
  EXPECT_THAT(parsed.warnings, ElementsAre());
  const LaunchPlan one = PlanOf(parsed);
  EXPECT_EQ(one.endpoint.port, 1234);
  EXPECT_EQ(one.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_FALSE(one.endpoint.has_store);
  EXPECT_EQ(one.master_port, std::nullopt);
  EXPECT_EQ(one.node_rank, 1U);
  EXPECT_EQ(one.job.fingerprint, zero.job.fingerprint);
}

TEST(Static, DefaultsWithMoreNodes) {
  const LaunchPlan plan = PlanOf("--nnodes 2 train.py");
  EXPECT_EQ(plan.endpoint.host, "127.0.0.1");
  EXPECT_EQ(plan.endpoint.port, 29500);
  EXPECT_TRUE(plan.endpoint.has_store);
  EXPECT_EQ(plan.node_rank, 0U);
  EXPECT_EQ(plan.master_addr, "127.0.0.1");
}

TEST(Static, BracketsAreTakenOff) {  // 40
  const LaunchPlan plan = PlanOf("--nnodes 2 --master-addr [::1] --master-port 7 train.py");
  EXPECT_EQ(plan.master_addr, "::1");
  EXPECT_EQ(plan.endpoint.host, "::1");
  EXPECT_EQ(PlanOf("--master-addr [::1] --master-port 7 train.py").master_addr, "::1");
}

TEST(Static, EndpointWinsOverMasterAddress) {
  const LaunchPlan plan = PlanOf(
      "--nnodes 2 --rdzv_backend static --rdzv_endpoint host0:5000 --master_addr other --node_rank "
      "1 train.py");
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.endpoint.port, 5000);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_EQ(plan.master_addr, "host0");
}

TEST(Static, IsHostOverrides) {
  EXPECT_EQ(PlanOf("--nnodes 2 --node_rank 0 --rdzv_conf is_host=0 train.py").endpoint.hosting,
            EndpointPlan::Hosting::kNever);
}

TEST(Static, AnyFreeMasterPortOnOneNode) {
  EXPECT_EQ(PlanOf("--master_port 0 train.py").master_port, std::nullopt);
}

TEST(Dynamic, DefaultEndpoint) {  // 33
  const CommandLine parsed = Parse(Words("--rdzv-backend=c10d train.py"));
  const LaunchPlan plan = PlanOf(parsed);
  EXPECT_EQ(plan.endpoint.kind, EndpointPlan::Kind::kTcp);
  EXPECT_EQ(plan.endpoint.host, "localhost");
  EXPECT_EQ(plan.endpoint.port, 29400);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAuto);
  EXPECT_EQ(plan.job.run_id, "none");
  EXPECT_EQ(plan.node_rank, std::nullopt);
  EXPECT_EQ(plan.master_addr, "");
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("localhost:29400")));
}

TEST(Dynamic, EndpointAloneMeansDynamic) {
  const LaunchPlan plan = PlanOf("--nnodes 2:4 --rdzv_endpoint host0 --rdzv_id job7 train.py");
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.endpoint.port, 29400);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAuto);
  EXPECT_EQ(plan.node_rank, std::nullopt);
  EXPECT_EQ(plan.job.run_id, "job7");
  // With a rank it is the static one.
  const LaunchPlan ranked = PlanOf("--nnodes 2 --rdzv_endpoint host0:5 --node_rank 1 train.py");
  EXPECT_EQ(ranked.endpoint.hosting, EndpointPlan::Hosting::kNever);
}

TEST(Dynamic, NodeRankIsAClaimWhenGiven) {
  EXPECT_EQ(
      PlanOf("--nnodes 2 --rdzv_backend c10d --node_rank 1 --rdzv_endpoint h train.py").node_rank,
      1U);
  const CommandLine beyond =
      Parse(Words("--nnodes 2 --rdzv_backend c10d --node_rank 5 --rdzv_endpoint h train.py"));
  EXPECT_EQ(PlanOf(beyond).node_rank, std::nullopt);
  EXPECT_THAT(beyond.warnings, ElementsAre(HasSubstr("--node_rank 5 is ignored")));
  for (const char* rank : {"-1", "99999", "99999999999999999999"}) {
    const CommandLine wrong = Parse({"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                     "h", "--node_rank", rank, "train.py"});
    EXPECT_EQ(PlanOf(wrong).node_rank, std::nullopt);
    EXPECT_THAT(wrong.warnings,
                ElementsAre(HasSubstr(absl::StrCat("--node_rank ", rank, " is ignored"))));
  }
}

TEST(Dynamic, MasterOptions) {
  const CommandLine parsed = Parse(
      Words("--nnodes 2 --rdzv_backend c10d --rdzv_endpoint h:7 --master_addr m --master_port 8 "
            "train.py"));
  EXPECT_EQ(PlanOf(parsed).master_addr, "");
  EXPECT_EQ(PlanOf(parsed).master_port, 8);
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("--master_addr is ignored")));
  const CommandLine wrong =
      Parse(Words("--rdzv_backend c10d --rdzv_endpoint h:7 --master_addr a/b train.py"));
  EXPECT_EQ(PlanOf(wrong).master_addr, "");
  EXPECT_THAT(wrong.warnings, ElementsAre(HasSubstr("--master_addr is ignored")));
  PlanOf("--standalone --master_addr a/b train.py");
}

TEST(Dynamic, IsHost) {
  const std::string base = "--rdzv_backend c10d --rdzv_endpoint h --rdzv_conf is_host=";
  EXPECT_EQ(PlanOf(base + "true train.py").endpoint.hosting, EndpointPlan::Hosting::kAlways);
  EXPECT_EQ(PlanOf(base + "no train.py").endpoint.hosting, EndpointPlan::Hosting::kNever);
}

TEST(Dynamic, AnyFreePortOnOneNode) {
  EXPECT_EQ(PlanOf("--rdzv_backend c10d --rdzv_endpoint localhost:0 train.py").endpoint.port, 0);
}

TEST(Standalone, IsAFreshJobOfOneNode) {  // 41
  const CommandLine parsed = Parse(Words(
      "--standalone --nproc-per-node 2 --rdzv_id x --rdzv_endpoint host9:1 --rdzv_backend c10d "
      "train.py"));
  const LaunchPlan plan = PlanOf(parsed);
  EXPECT_EQ(plan.endpoint.kind, EndpointPlan::Kind::kUnix);
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kAlways);
  EXPECT_EQ(plan.job.run_id, FakeHost().RandomId());
  EXPECT_EQ(plan.worker_count, 2U);
  EXPECT_EQ(plan.master_addr, "127.0.0.1");
  EXPECT_THAT(parsed.warnings,
              ElementsAre(HasSubstr("ignores --rdzv_endpoint"), HasSubstr("ignores --rdzv_id")));
}

TEST(RunId, EmptyMeansRandom) {  // 35
  const CommandLine parsed = Parse(Words("--rdzv-id= train.py"));
  EXPECT_EQ(PlanOf(parsed).job.run_id, FakeHost().RandomId());
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("--rdzv-id is empty")));
}

TEST(Times, SecondsAndUnits) {
  const LaunchPlan plan = PlanOf(
      "--grace 0.5 --lease 2s --reconnect_grace 20ms --service_loss_timeout 1m "
      "--isolation_timeout 1e2 --monitor_interval 5 train.py");
  EXPECT_EQ(plan.job.stop_grace, absl::Milliseconds(500));
  EXPECT_EQ(plan.job.lease, absl::Seconds(2));
  EXPECT_EQ(plan.job.reconnect_grace, absl::Milliseconds(20));
  EXPECT_EQ(plan.service.loss, absl::Minutes(1));
  EXPECT_EQ(plan.service.loss_without_workers, absl::Minutes(1));
  EXPECT_EQ(plan.isolation_timeout, absl::Seconds(100));
  EXPECT_EQ(PlanOf("--lease 0.2 train.py").job.lease, absl::Milliseconds(200));
}

TEST(StateDir, IsAFolderOrWillBeOne) {
  EXPECT_EQ(PlanOf("train.py").state_dir, "");
  EXPECT_EQ(PlanOf("--state_dir logs train.py").state_dir, "logs");
  EXPECT_EQ(PlanOf("--state-dir /new/one train.py").state_dir, "/new/one");
  EXPECT_EQ(PlanOf("--state_dir logs train.py").service.loss_without_workers, absl::Seconds(90));
  EXPECT_EQ(PlanOf("--rdzv_conf state_dir=/a train.py").state_dir, "/a");
  EXPECT_EQ(PlanOf("--rdzv_conf state_dir=/a --state_dir /b train.py").state_dir, "/b");
  EXPECT_THAT(ExitOf(Parse({"--state_dir", "secret.py", "train.py"})).text,
              HasSubstr("--state_dir 'secret.py': is not a directory"));
  EXPECT_THAT(ExitOf(Parse({"--rdzv_conf", "state_dir=secret.py", "train.py"})).text,
              HasSubstr("--rdzv_conf state_dir 'secret.py': is not a directory"));
  EXPECT_EQ(ExitOf(Parse({"--state_dir", "", "train.py"})).status, 1);
}

TEST(ExitCode, IsOneOrTheWorkers) {
  EXPECT_FALSE(PlanOf("train.py").ending.with_first_cause);
  EXPECT_FALSE(PlanOf("--exit_code 1 train.py").ending.with_first_cause);
  EXPECT_TRUE(PlanOf("--exit_code worker train.py").ending.with_first_cause);
}

TEST(Token, FromOptionFileOrVariable) {
  EXPECT_EQ(PlanOf("--token abc train.py").token, "abc");
  EXPECT_EQ(PlanOf("--token_file token train.py").token, "s3cret");
  EXPECT_EQ(PlanOf("train.py", {{"DDPRUN_TOKEN", "env"}}).token, "env");
  EXPECT_EQ(PlanOf("--token abc train.py", {{"DDPRUN_TOKEN", "env"}}).token, "abc");
  EXPECT_EQ(PlanOf("--token_file token train.py", {{"DDPRUN_TOKEN", "env"}}).token, "s3cret");
}

TEST(Command, Python) {  // 19, 23
  EXPECT_THAT(PlanOf("train.py a b").argv,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "a", "b"));
  EXPECT_THAT(PlanOf("-m pkg.mod a").argv,
              ElementsAre("/usr/bin/python3", "-u", "-m", "pkg.mod", "a"));
  EXPECT_THAT(PlanOf("train.py z", {{"PYTHON_EXEC", "/bin/echo"}}).argv,
              ElementsAre("/bin/echo", "-u", "train.py", "z"));
  EXPECT_EQ(PlanOf("app").entry_point, "app");  // a directory with __main__.py
  EXPECT_EQ(PlanOf("-").entry_point, "-");
}

TEST(Command, PythonIsLookedFor) {
  FakeHost host;
  host.programs.erase("python3");
  EXPECT_THAT(PlanOf("train.py", {}, host).argv.front(), "/usr/bin/python");
  host.programs.erase("python");
  const ExitNow none = ExitOf(Parse({"train.py"}, {}, host));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.text, HasSubstr("there is no python3 in PATH"));
  const ExitNow bad = ExitOf(Parse({"train.py"}, {{"PYTHON_EXEC", "/no/python"}}));
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.text, HasSubstr("PYTHON_EXEC can't be run: '/no/python'"));
}

TEST(Command, Program) {  // 21
  const LaunchPlan plan = PlanOf("--no-python echo ${local_rank}");
  EXPECT_THAT(plan.argv, ElementsAre("echo", "${local_rank}"));
  EXPECT_EQ(plan.entry_point, "echo");
}

TEST(Output, Sinks) {
  const LaunchPlan plan = PlanOf("--nproc_per_node 3 -t 0:1,1:2 -r 0:2 train.py");  // 76
  EXPECT_THAT(plan.output.stdout_sinks, ElementsAre(Pair(0, StreamSink::kTee)));
  EXPECT_THAT(plan.output.stderr_sinks,
              ElementsAre(Pair(0, StreamSink::kFile), Pair(1, StreamSink::kTee)));
  const LaunchPlan many = PlanOf("--nproc_per_node 12 -r 10:1,99:3 train.py");
  EXPECT_THAT(many.output.stdout_sinks, ElementsAre(Pair(10, StreamSink::kFile)));
  EXPECT_THAT(many.output.stderr_sinks, IsEmpty());
}

TEST(Output, PrefixTakesWhatIsLeft) {
  const LaunchPlan plan = PlanOf("--nproc_per_node 2 --prefix_output -r 0:1 train.py");
  EXPECT_THAT(plan.output.stdout_sinks,
              ElementsAre(Pair(0, StreamSink::kFile), Pair(1, StreamSink::kPrefixed)));
  EXPECT_THAT(plan.output.stderr_sinks,
              ElementsAre(Pair(0, StreamSink::kPrefixed), Pair(1, StreamSink::kPrefixed)));
}

TEST(Output, DevNullMeansNoFiles) {  // 78
  const LaunchPlan plan = PlanOf("--log-dir /dev/null -t 3 -r 3 train.py");
  EXPECT_THAT(plan.output.stdout_sinks, IsEmpty());
  EXPECT_THAT(plan.output.stderr_sinks, IsEmpty());
  EXPECT_EQ(plan.output.log_dir, "/dev/null");
}

TEST(Output, Directories) {
  EXPECT_EQ(PlanOf("--log_dir logs train.py").output.log_dir, "logs");
  EXPECT_EQ(PlanOf("--log_dir new/one train.py").output.log_dir, "new/one");
  EXPECT_EQ(PlanOf("--event_log e.jsonl train.py").event_log, "e.jsonl");
}

TEST(Output, PrefixTemplate) {
  EXPECT_EQ(PlanOf("train.py").output.prefix_template, "[${role_name}${local_rank}]:");
  EXPECT_EQ(PlanOf("train.py", {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}> "}})
                .output.prefix_template,
            "${rank}> ");
}

TEST(Identity, CoversWhatNodesShare) {
  const std::string base = PlanOf("--nnodes 2 train.py").job.fingerprint;
  // The same on nodes that differ in place, size and arguments.
  for (const char* line : {"--nnodes 2 --node_rank 1 train.py", "--nnodes 2 train.py --data /b",
                           "--nnodes 2 --nproc_per_node 4 train.py", "--nnodes 2 /opt/app/train.py",
                           "--nnodes 2 --role b train.py"}) {
    EXPECT_EQ(PlanOf(line).job.fingerprint, base) << line;
  }
  for (const char* line :
       {"--nnodes 3 train.py", "--nnodes 1:2 train.py", "--nnodes 2 --max_restarts 1 train.py",
        "--nnodes 2 --rdzv_id x train.py", "--nnodes 2 app"}) {
    EXPECT_NE(PlanOf(line).job.fingerprint, base) << line;
  }
  EXPECT_NE(PlanOf("--nnodes 2 -m app").job.fingerprint, PlanOf("--nnodes 2 app").job.fingerprint);
}

TEST(Identity, IsStableOverReleases) {
  // A changed digest would tear apart jobs whose nodes run different releases.
  EXPECT_EQ(PlanOf("--nnodes 2 train.py").job.fingerprint, "42c1edf180c2d949");
}

TEST(Identity, Description) {
  EXPECT_EQ(PlanOf("--nnodes 2 train.py --lr 0.1").job.description, "train.py --lr 0.1 (2 nodes)");
  EXPECT_EQ(PlanOf("--nnodes 1:2 -m pkg.mod").job.description, "-m pkg.mod (1 to 2 nodes)");
  EXPECT_EQ(PlanOf("--no_python echo a").job.description, "echo a (1 node)");
  EXPECT_LT(PlanOf(Parse({"train.py", std::string(9999, 'x')})).job.description.size(), 200U);
  EXPECT_EQ(PlanOf(Parse({"train.py", "\xff\n"})).job.description, "train.py \\xff\\n (1 node)");
}

// First mistakes of those who come from a script, a list of arguments or torchrun.
TEST(Plan, ForgivesWhatIsClear) {
  const auto warning = [](const std::string& line) {
    const CommandLine parsed = Parse(Words(absl::StrCat("--rdzv-id r ", line)));
    PlanOf(parsed);
    return absl::StrJoin(parsed.warnings, "\n");
  };
  EXPECT_THAT(warning("--rdzv-conf \"join_timeout=5,lease=3\" train.py"),
              HasSubstr("the quotes around it are taken off"));
  EXPECT_EQ(PlanOf("--rdzv-conf 'lease=3' train.py").job.lease, absl::Seconds(3));
  EXPECT_EQ(warning("--rdzv-conf lease=3 --logs-specs default train.py"), "");

  const std::string alone = "--nnodes 1:2 --rdzv-endpoint localhost:0 train.py";
  EXPECT_THAT(warning(alone), HasSubstr("no other node can know; this job stays with one node"));
  EXPECT_EQ(PlanOf(alone).job.nodes_max, 1U);
  EXPECT_THAT(warning("train.py --epochs 3 --nproc-per-node=4"),
              HasSubstr("--nproc-per-node stands behind 'train.py', which gets it"));
  EXPECT_EQ(warning("train.py --epochs 3 --lr 0.1"), "");
}

}  // namespace
}  // namespace ddprun::launcher
