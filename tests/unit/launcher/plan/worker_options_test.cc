// torchrun's options about devices, output, signals and stopping, and ours beside them:
// checks 12, 13, 28, 37, 38, 44, 45, 68 of tests/contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

FakeHost HostWithGpus(uint32_t count) {
  FakeHost host;
  host.gpus = count;
  return host;
}

TEST(WorkerOptions, Refusals) {
  const Refused kCases[] = {
      {"--start-method=foo train.py", 2, "--start-method 'foo': give spawn, fork or forkserver"},
      {"--numa-binding=foo train.py", 2, "--numa-binding 'foo': give node, socket"},
      {"--numa-binding= train.py", 2, "--numa-binding ''"},
      // 99
      {"--numa-binding node train.py", 1, "there are 0 GPUs for 1 worker"},
      {"--local-ranks-filter=a train.py", 1, "--local-ranks-filter 'a': 'a' is no number"},
      {"--local-ranks-filter=1, train.py", 1, "--local-ranks-filter '1,': '' is no number"},
      {"--local-ranks-filter=0-9999 train.py", 1, "'0-9999' is no number from 0 to 4095"},
      {"--local-ranks-filter=0-4095,0 train.py", 1, "lists more than 4096"},
      {"--logs-specs=foo train.py", 1, "--logs-specs 'foo': is a Python class"},
      {"--event-log-handler=foo train.py", 1, "--event-log-handler 'foo': is no handler"},
      {"--report-file=logs train.py", 1, "--report-file 'logs': is a directory"},
      {"--omp-threads=0 train.py", 1, "--omp-threads '0': must be from 1"},
      {"--omp-threads=x train.py", 2, "--omp-threads 'x': is not a whole number"},
      {"--shutdown-timeout=x train.py", 2, "--shutdown-timeout 'x': is not a number of seconds"},
      {"--shutdown-timeout=-1 train.py", 1, "--shutdown-timeout '-1'"},
      {"--exit-barrier-timeout=x train.py", 2, "--exit-barrier-timeout 'x'"},
      {"--grace 5 --shutdown-timeout 6 train.py", 1, "is the same as --grace, which says '5'"},
      {"--preempt-signals=BOGUS train.py", 1, "--preempt-signals 'BOGUS': 'BOGUS' is no signal"},
      {"--preempt-deadline=0 train.py", 1, "--preempt-deadline '0'"},
      {"--preempt-deadline=x train.py", 2, "--preempt-deadline 'x': is not a number of seconds"},
      {"--preempt-after=x train.py", 2, "--preempt-after 'x': is not a number of seconds"},
      {"--preempt-after=30 train.py", 1,
       "--preempt-after '30': is not longer than --preempt_deadline (30s)"},
      {"--preempt-after=9000h train.py", 1, "--preempt-after '9000h': must be from 100ms to 8760h"},
      {"--preempt-signals=none,TERM train.py", 1, "'none' is no signal"},
      {"--preempt-signals=KILL train.py", 1, "'KILL' can't be handled"},
      {"--preempt-signals=USR1, train.py", 1, "'' is no signal"},
      {"--signals-to-handle=USR1 --preempt-signals=USR1 train.py", 1,
       "USR1 is one of --signals-to-handle too"},
      {"--use-env=false --no-python echo", 1, "gets no --local-rank"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

TEST(WorkerOptions, StartMethodIsCheckedOnTheCommandLineOnly) {  // 12
  const CommandLine parsed = Parse({"train.py"}, {{"PET_START_METHOD", "bogus"}});
  PlanOf(parsed);
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("PET_START_METHOD has no effect")));
}

TEST(WorkerOptions, WhatHasNoEffectIsSaidOnce) {
  const CommandLine parsed = Parse(Words("--start_method fork --monitor_interval 5 train.py"));
  PlanOf(parsed);
  EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("--monitor_interval has no effect"),
                                           HasSubstr("--start_method has no effect")));
  EXPECT_THAT(Parse({"train.py"}).warnings, IsEmpty());
}

TEST(WorkerOptions, ExitBarrierIsBoundedOnRequest) {
  EXPECT_EQ(PlanOf("train.py").exit_barrier.timeout, absl::InfiniteDuration());
  EXPECT_EQ(PlanOf("--exit-barrier-timeout 60 train.py").exit_barrier.timeout, absl::Minutes(1));
  EXPECT_EQ(PlanOf("train.py", {{"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT", "2"}}).exit_barrier.timeout,
            absl::Seconds(2));
}

TEST(WorkerOptions, ShutdownTimeoutIsTheGrace) {
  EXPECT_EQ(PlanOf("--shutdown-timeout 7 train.py").job.stop_grace, absl::Seconds(7));
  EXPECT_EQ(PlanOf("--shutdown_timeout 7 --grace 7s train.py").job.stop_grace, absl::Seconds(7));
  const Variables variable = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90"}};
  EXPECT_EQ(PlanOf("train.py", variable).job.stop_grace, absl::Seconds(90));
  EXPECT_EQ(
      PlanOf("train.py", {{"PET_SHUTDOWN_TIMEOUT", "8"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90"}})
          .job.stop_grace,
      absl::Seconds(8));
  ExpectRefused({"--grace 5 train.py", 1, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT '90': is the same"},
                variable);
}

TEST(Gpus, AList) {
  const LaunchPlan plan = PlanOf("--nproc_per_node gpu:1,3,5-6 train.py", {}, HostWithGpus(8));
  EXPECT_EQ(plan.worker_count, 4U);
  EXPECT_THAT(plan.devices.visible, ElementsAre("1", "3", "5", "6"));
  EXPECT_FALSE(plan.devices.virtual_local_rank);
  // Within what the user sees.
  EXPECT_THAT(PlanOf("--nproc_per_node gpu:2,0 train.py", {{"CUDA_VISIBLE_DEVICES", "4, GPU-aa,6"}},
                     HostWithGpus(3))
                  .devices.visible,
              ElementsAre("6", "4"));
}

TEST(Gpus, MistakesInAList) {
  const Refused kCases[] = {
      {"--nproc_per_node gpu:1,4 train.py", 1, "device 4 is not there; this node has 4"},
      {"--nproc_per_node gpu:1,1 train.py", 1, "device 1 is listed twice"},
      {"--nproc_per_node gpu: train.py", 1, "'' is no number"},
      {"--nproc_per_node gpu:a train.py", 1, "'a' is no number"},
  };
  for (const Refused& c : kCases) ExpectRefused(c, {}, HostWithGpus(4));
  ExpectRefused({"--nproc_per_node gpu:0 train.py", 1, "Cuda is not available"});
}

TEST(WorkerOptions, PythonIsThatOfTheVirtualEnvironmentWithThisProgram) {
  FakeHost host;
  host.programs["/opt/venv/bin/python3"] = "/opt/venv/bin/python3";
  EXPECT_THAT(PlanOf("train.py", {}, host).argv, ElementsAre("/usr/bin/python3", "-u", "train.py"))
      << "a folder without pyvenv.cfg is none";
  host.paths["/opt/venv/bin/../pyvenv.cfg"] = Host::PathKind::kFile;
  EXPECT_THAT(PlanOf("train.py", {}, host).argv,
              ElementsAre("/opt/venv/bin/python3", "-u", "train.py"));
  EXPECT_THAT(PlanOf("train.py", {{"PYTHON_EXEC", "python"}}, host).argv,
              ElementsAre("python", "-u", "train.py"));
  host.programs.erase("/opt/venv/bin/python3");
  EXPECT_THAT(PlanOf("train.py", {}, host).argv, ElementsAre("/usr/bin/python3", "-u", "train.py"));
}

TEST(WorkerOptions, AnActiveEnvironmentWinsOverThatOfATool) {
  FakeHost host;
  host.paths["/opt/venv/bin/../pyvenv.cfg"] = Host::PathKind::kFile;
  for (const char* python :
       {"/opt/venv/bin/python3", "/my project/bin/python3", "/opt/conda/bin/python3"}) {
    host.programs[python] = python;
  }
  const auto python = [&host](const Variables& variables) {
    return PlanOf("train.py", variables, host).argv[0];
  };
  const std::pair<std::string, std::string> venv = {"VIRTUAL_ENV", "/my project"};
  const std::pair<std::string, std::string> conda = {"CONDA_PREFIX", "/opt/conda"};
  EXPECT_EQ(python({}), "/opt/venv/bin/python3");
  EXPECT_EQ(python({venv}), "/my project/bin/python3");
  EXPECT_EQ(python({conda}), "/opt/conda/bin/python3");
  EXPECT_EQ(python({{"VIRTUAL_ENV", "/opt/venv"}}), "/opt/venv/bin/python3");
  EXPECT_EQ(python({venv, {"PYTHON_EXEC", "python"}}), "python");
  // There is no interpreter in /gone.
  EXPECT_EQ(python({{"VIRTUAL_ENV", "/gone"}}), "/opt/venv/bin/python3");
  EXPECT_EQ(python({{"VIRTUAL_ENV", "/gone"}, conda}), "/opt/conda/bin/python3");
  EXPECT_EQ(python({{"VIRTUAL_ENV", ""}}), "/opt/venv/bin/python3");
  // With both set, the one that was activated last is the first of PATH.
  EXPECT_EQ(python({venv, conda}), "/my project/bin/python3");
  host.programs["python3"] = "/opt/conda/bin/python3";
  EXPECT_EQ(python({venv, conda}), "/opt/conda/bin/python3");
  host.programs["python3"] = "/my project/bin/python3";
  EXPECT_EQ(python({venv, conda}), "/my project/bin/python3");
}

TEST(WorkerOptions, AnEnvironmentWithTorchAndThisProgramIsNoTools) {
  FakeHost host;
  host.paths["/opt/venv/bin/../pyvenv.cfg"] = Host::PathKind::kFile;
  for (const char* python : {"/opt/venv/bin/python3", "/project/bin/python3"}) {
    host.programs[python] = python;
  }
  for (const char* version : {"3.8", "3.11", "3.14"}) {
    const std::string torch =
        absl::StrCat("/opt/venv/bin/../lib/python", version, "/site-packages/torch");
    host.paths.erase(torch);
    EXPECT_EQ(PlanOf("train.py", {{"VIRTUAL_ENV", "/project"}}, host).argv[0],
              "/project/bin/python3");
    host.paths[torch] = Host::PathKind::kDirectory;
    EXPECT_EQ(PlanOf("train.py", {{"VIRTUAL_ENV", "/project"}}, host).argv[0],
              "/opt/venv/bin/python3");
    host.paths.erase(torch);
  }
}

TEST(WorkerOptions, AnEnvironmentOfCondasIsOneToo) {
  FakeHost host;
  host.programs["/opt/venv/bin/python3"] = "/opt/venv/bin/python3";
  host.paths["/opt/venv/bin/../conda-meta"] = Host::PathKind::kDirectory;
  EXPECT_EQ(PlanOf("train.py", {}, host).argv[0], "/opt/venv/bin/python3");
}

TEST(WorkerOptions, OtherAcceleratorsAreCountedByTorch) {
  FakeHost host;
  host.torch_devices = {{"xpu", 3}, {"auto", 5}, {"gpu", 2}};
  EXPECT_EQ(PlanOf("--nproc_per_node xpu train.py", {}, host).worker_count, 3U);
  // Without a sign of a device nobody waits for an import of torch.
  EXPECT_EQ(PlanOf("--nproc_per_node auto train.py", {}, host).worker_count, 6U);
  ExpectRefused({"--nproc_per_node gpu train.py", 1, "Cuda is not available"});
  host.other_accelerators = true;
  EXPECT_EQ(PlanOf("--nproc_per_node auto train.py", {}, host).worker_count, 5U);
  EXPECT_EQ(PlanOf("--nproc_per_node gpu train.py", {}, host).worker_count, 2U);
  EXPECT_THAT(PlanOf("--nproc_per_node gpu:1 train.py", {}, host).devices.visible,
              ElementsAre("1"));
  host.gpus = 1;
  EXPECT_EQ(PlanOf("--nproc_per_node auto train.py", {}, host).worker_count, 1U);
  ExpectRefused({"--nproc_per_node npu train.py", 1,
                 "'npu': no device of that kind was found (the torch of python3 finds no such "
                 "device)"});
}

TEST(Debug, NcclAndTorchTellWhatTheyDo) {
  EXPECT_THAT(PlanOf("train.py").extra_environment, IsEmpty());
  EXPECT_THAT(PlanOf("--debug train.py").extra_environment,
              ElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("TORCH_DISTRIBUTED_DEBUG", "DETAIL")));
  EXPECT_THAT(PlanOf("train.py --debug").extra_environment, IsEmpty());  // the script's
}

TEST(DeepSpeed, IsAskedForByTheScriptsArguments) {
  EXPECT_TRUE(PlanOf("train.py --use_deepspeed").deepspeed);
  EXPECT_TRUE(PlanOf("train.py --deepspeed_config ds.json").deepspeed);
  EXPECT_FALSE(PlanOf("train.py --config deepspeed.json").deepspeed);
}

TEST(WorkerOptions, TorchrunsNameOfThePrefixTemplate) {
  const auto template_of = [](const std::string& words, const Variables& variables = {}) {
    return PlanOf(words, variables).output.prefix_template;
  };
  const Variables newer = {{"PET_LOG_LINE_PREFIX_TEMPLATE", "b"},
                           {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "c"}};
  EXPECT_EQ(template_of("--log-line-prefix-template a train.py", newer), "a");
  EXPECT_EQ(template_of("--log_line_prefix_template a train.py"), "a");
  EXPECT_EQ(template_of("train.py", newer), "b");
  EXPECT_EQ(template_of("train.py", {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "c"}}), "c");
  EXPECT_EQ(template_of("--log-line-prefix-template= train.py"), OutputPlan().prefix_template);
}

// torchrun's rule since 2.12: a job of one node without a port is a standalone one.
TEST(WorkerOptions, TheNameOfARunOfOneNode) {
  EXPECT_EQ(PlanOf("train.py").job.run_id, FakeHost().RandomId());
  EXPECT_EQ(PlanOf("train.py").rdzv_backend, "c10d");
  EXPECT_EQ(PlanOf("--rdzv_id job7 train.py").job.run_id, "job7");  // torchrun drops it
  EXPECT_EQ(PlanOf("--master_port 29501 train.py").job.run_id, "none");
  EXPECT_EQ(PlanOf("--master_port 29501 train.py").rdzv_backend, "static");
  EXPECT_EQ(PlanOf("--nnodes 2 train.py").job.run_id, "none");
}

TEST(Completion, IsWhatWasInstalledBesideTheProgram) {
  FakeHost host;
  host.files["/opt/venv/bin/../share/bash-completion/completions/ddprun"] = "complete ddprun\n";
  const ExitNow bash = ExitOf(Parse({"--print-completion", "bash"}, {}, host));
  EXPECT_EQ(bash.status, 0);
  EXPECT_EQ(bash.text, "complete ddprun\n");
  ExpectRefused({"--print-completion zsh", 1, "/opt/venv/bin/../share has no completion"});
  ExpectRefused({"--print-completion tcsh", 1, "there is no completion for tcsh"});
  ExpectRefused({"--print-completion fish", 2, "give bash or zsh"});
}

TEST(Gpus, VirtualLocalRank) {  // 44, 45
  const LaunchPlan plan = PlanOf("--virtual-local-rank --nproc-per-node 2 train.py");
  EXPECT_TRUE(plan.devices.virtual_local_rank);
  EXPECT_THAT(plan.devices.visible, IsEmpty());
  EXPECT_THAT(PlanOf("--virtual-local-rank --nproc-per-node 2 train.py",
                     {{"CUDA_VISIBLE_DEVICES", "5, GPU-7"}})
                  .devices.visible,
              ElementsAre("5", "GPU-7"));
  EXPECT_THAT(PlanOf("--virtual-local-rank --nproc-per-node 2 train.py",
                     {{"CUDA_VISIBLE_DEVICES", "5,7"}, {"HIP_VISIBLE_DEVICES", "1,2"}})
                  .devices.visible,
              ElementsAre("1", "2"));
  ExpectRefused({"--virtual-local-rank --nproc-per-node 2 train.py", 1,
                 "needs a device for each of the 2 workers, but CUDA_VISIBLE_DEVICES lists 1"},
                {{"CUDA_VISIBLE_DEVICES", "5"}});
  EXPECT_THAT(PlanOf("--virtual-local-rank --nproc-per-node gpu:1,3 train.py", {}, HostWithGpus(4))
                  .devices.visible,
              ElementsAre("1", "3"));
  EXPECT_TRUE(PlanOf("train.py", {{"PET_VIRTUAL_LOCAL_RANK", "yes"}}).devices.virtual_local_rank);
}

TEST(OmpThreads, AreTheUsersChoice) {  // 42
  EXPECT_EQ(PlanOf("--nproc_per_node 2 train.py").omp_threads, std::nullopt);
  EXPECT_EQ(PlanOf("--nproc_per_node 2 --omp-threads auto train.py").omp_threads, 3U);
  EXPECT_EQ(PlanOf("--nproc_per_node 9 --omp-threads auto train.py").omp_threads, 1U);
  EXPECT_EQ(PlanOf("--omp-threads 4 train.py").omp_threads, 4U);
}

TEST(OmpThreads, TheDefaultIsSaidInOneLine) {
  const CommandLine parsed = Parse(Words("--nproc_per_node 2 train.py"));
  EXPECT_THAT(parsed.warnings, IsEmpty());
  EXPECT_THAT(PlanOf(parsed).note_at_start, HasSubstr("OMP_NUM_THREADS=1"));
  EXPECT_EQ(PlanOf("--nproc_per_node 2 --omp_threads 1 train.py").note_at_start, "");
  EXPECT_EQ(
      PlanOf(Parse(Words("--nproc_per_node 2 train.py"), {{"OMP_NUM_THREADS", "5"}})).note_at_start,
      "");
}

TEST(OutputOptions, LocalRanksFilter) {  // 28, 77
  EXPECT_THAT(PlanOf("train.py").output.local_ranks_filter, IsEmpty());
  EXPECT_THAT(PlanOf("--local-ranks-filter= train.py").output.local_ranks_filter, IsEmpty());
  EXPECT_THAT(
      PlanOf("--nproc_per_node 9 --local_ranks_filter 7,0-2 train.py").output.local_ranks_filter,
      ElementsAre(0, 1, 2, 7));
  for (const char* filter : {"1", "-1", "99999", "-1,99999"}) {
    const CommandLine parsed = Parse({absl::StrCat("--local-ranks-filter=", filter), "train.py"});
    EXPECT_FALSE(PlanOf(parsed).output.local_ranks_filter.contains(0)) << filter;
    EXPECT_FALSE(PlanOf(parsed).output.local_ranks_filter.empty()) << filter;
    EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr("names no worker of this node")));
  }
  EXPECT_THAT(PlanOf("--local-ranks-filter 0,-1 train.py").output.local_ranks_filter,
              testing::Contains(0));
}

TEST(OutputOptions, DuplicateFilters) {  // 79
  const LaunchPlan plan =
      PlanOf("--duplicate-stdout-filters a,,b,c --duplicate-stderr-filters=x train.py");
  EXPECT_THAT(plan.output.duplicate_stdout_filters, ElementsAre("a,b", "c"));
  EXPECT_THAT(plan.output.duplicate_stderr_filters, ElementsAre("x"));
  EXPECT_THAT(PlanOf("--duplicate-stdout-filters= train.py").output.duplicate_stdout_filters,
              ElementsAre(""));
  EXPECT_THAT(PlanOf("--duplicate-stdout-filters ,,,a, train.py").output.duplicate_stdout_filters,
              ElementsAre(",", "a", ""));
  EXPECT_THAT(PlanOf("train.py").output.duplicate_stdout_filters, IsEmpty());
  const CommandLine without =
      Parse(Words("--log_dir /dev/null --duplicate-stdout-filters a train.py"));
  EXPECT_THAT(PlanOf(without).output.duplicate_stdout_filters, IsEmpty());
  EXPECT_THAT(without.warnings, ElementsAre(HasSubstr("--duplicate-stdout-filters is ignored")));
}

TEST(OutputOptions, StreamsOfManyRanks) {
  EXPECT_THAT(PlanOf("--nproc_per_node 12 -r 10-11:1,3:0,*:2 train.py").output.stdout_sinks,
              ElementsAre(Pair(10, StreamSink::kFile), Pair(11, StreamSink::kFile)));
  EXPECT_EQ(PlanOf("--nproc_per_node 12 -r 10-11:1,3:0,*:2 train.py").output.stderr_sinks.size(),
            9U);
}

TEST(OutputOptions, ReportAndEvents) {
  const LaunchPlan plan = PlanOf("--report-file end.json --event-log-handler console train.py");
  EXPECT_EQ(plan.report_file, "end.json");
  EXPECT_TRUE(plan.events_on_console);
  EXPECT_FALSE(PlanOf("--event-log-handler null train.py").events_on_console);
}

TEST(Signals, AsTorchrunByDefault) {
  const SignalPlan signals = PlanOf("train.py").signals;
  EXPECT_THAT(signals.policy.ending, UnorderedElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(signals.policy.preempting, IsEmpty());
  EXPECT_EQ(signals.text, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
}

TEST(Signals, UnknownOnesOnlyWarn) {  // 68
  const CommandLine parsed =
      Parse({"--signals-to-handle", "SIGUSR1, BOGUS,term,15,SIGKILL", "train.py"});
  const SignalPlan signals = PlanOf(parsed).signals;
  EXPECT_THAT(signals.policy.ending, UnorderedElementsAre(SIGUSR1, SIGTERM));
  EXPECT_EQ(signals.text, "SIGUSR1, BOGUS,term,15,SIGKILL");
  EXPECT_THAT(parsed.warnings,
              ElementsAre(HasSubstr("--signals-to-handle: ' BOGUS' is no signal"),
                          HasSubstr("'SIGKILL' can't be handled: the kernel or ddprun needs it")));
}

TEST(Signals, OfPreemption) {
  const SignalPlan signals = PlanOf("--preempt-signals SIGUSR2,TERM,USR2 train.py").signals;
  EXPECT_THAT(signals.policy.preempting, UnorderedElementsAre(SIGUSR2, SIGTERM));
  EXPECT_THAT(signals.policy.ending, UnorderedElementsAre(SIGINT, SIGHUP, SIGQUIT));
}

TEST(Signals, TheDeadlineOfPreemptionIsTheGraceUnlessGiven) {
  EXPECT_EQ(PlanOf("--grace 7 train.py").signals.preemption.deadline, absl::Seconds(7));
  EXPECT_EQ(PlanOf("--grace 7 --preempt-deadline 2m train.py").signals.preemption.deadline,
            absl::Minutes(2));
}

TEST(Signals, TermPreemptsThoseThatAskUnlessTheOptionSaysOtherwise) {
  EXPECT_TRUE(PlanOf("train.py").signals.policy.term_preempts_who_asks);
  EXPECT_THAT(PlanOf("train.py").signals.policy.preempting, ElementsAre());
  EXPECT_FALSE(PlanOf("--preempt-signals USR1 train.py").signals.policy.term_preempts_who_asks);
  const SignalPlan none = PlanOf("--preempt-signals none train.py").signals;
  EXPECT_FALSE(none.policy.term_preempts_who_asks);
  EXPECT_THAT(none.policy.preempting, ElementsAre());
  EXPECT_THAT(none.policy.ending, UnorderedElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
}

TEST(Signals, TheTimeOfANode) {
  EXPECT_EQ(PlanOf("train.py").signals.preemption.after, absl::InfiniteDuration());
  EXPECT_EQ(PlanOf("--preempt-after 720h train.py").signals.preemption.after, absl::Hours(720));
}

TEST(RunPath, WinsOverOtherKinds) {
  const LaunchPlan plan = PlanOf("--run-path -m --no-python train.py a");
  EXPECT_TRUE(plan.run_path);
  // A program for runpy stands in front of the script.
  EXPECT_THAT(plan.argv,
              ElementsAre("/usr/bin/python3", "-u", "-c", HasSubstr("runpy"), "train.py", "a"));
  EXPECT_THAT(plan.job.description, HasSubstr("train.py a"));
  EXPECT_THAT(plan.job.description, ::testing::Not(HasSubstr("runpy")));
}

TEST(UseEnv, IsAHiddenAlias) {
  EXPECT_THAT(PlanOf("--use_env train.py a").argv,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "a"));
  EXPECT_THAT(PlanOf("--use-env=false train.py a").argv,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "--local-rank=${local_rank}", "a"));
  EXPECT_THAT(ExitOf(Parse({"--help-all"})).text, testing::Not(HasSubstr("use-env")));
}

}  // namespace
}  // namespace ddprun::launcher
