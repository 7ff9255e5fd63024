// Files of `accelerate config`: what `accelerate launch` makes of them, in our plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

CommandLine ParseAccelerate(const std::string& text, const std::string& line = "train.py") {
  FakeHost host;
  host.files["default_config.yaml"] = text;
  return Parse(Words(absl::StrCat("--config default_config.yaml ", line)), {}, host);
}

std::map<std::string, std::string> VariablesOf(const std::string& text) {
  const LaunchPlan plan = PlanOf(ParseAccelerate(text));
  return {plan.extra_environment.begin(), plan.extra_environment.end()};
}

// The file that accelerate 1.15 writes for one machine with two GPUs.
constexpr char kTwoGpus[] = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

TEST(Accelerate, OneMachine) {
  const CommandLine parsed = ParseAccelerate(kTwoGpus);
  const LaunchPlan plan = PlanOf(parsed);
  EXPECT_EQ(plan.job.nodes_max, 1U);
  EXPECT_EQ(plan.worker_count, 2U);
  EXPECT_EQ(plan.master_port, std::nullopt);
  EXPECT_THAT(parsed.warnings, IsEmpty());
  EXPECT_THAT(plan.extra_environment,
              ElementsAre(Pair("ACCELERATE_MIXED_PRECISION", "bf16"), Pair("OMP_NUM_THREADS", "1"),
                          Pair("ACCELERATE_DYNAMO_BACKEND", "NO"),
                          Pair("ACCELERATE_DYNAMO_MODE", "default"),
                          Pair("ACCELERATE_DYNAMO_USE_FULLGRAPH", "False"),
                          Pair("ACCELERATE_DYNAMO_USE_DYNAMIC", "False"),
                          Pair("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False")));
}

TEST(Accelerate, ProcessesAreCountedOverAllMachines) {
  const std::string text =
      "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 1\n"
      "main_process_ip: host0\nmain_process_port: 5000\nsame_network: true\n";
  const LaunchPlan plan = PlanOf(ParseAccelerate(text));
  EXPECT_EQ(plan.job.nodes_min, 2U);
  EXPECT_EQ(plan.worker_count, 4U);
  EXPECT_EQ(plan.node_rank, 1U);
  EXPECT_EQ(plan.master_addr, "host0");
  EXPECT_EQ(plan.endpoint.port, 5000);
  // Our options still win.
  EXPECT_EQ(PlanOf(ParseAccelerate(text, "--node_rank 0 --nproc_per_node 1 train.py")).worker_count,
            1U);
}

TEST(Accelerate, OtherNetworksAndBackendsUseTheEndpoint) {
  const std::string base =
      "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 2\nmain_process_ip: fd00::1\n"
      "main_process_port: 5000\n";
  const LaunchPlan fixed = PlanOf(ParseAccelerate(base + "same_network: false\n"));
  EXPECT_EQ(fixed.endpoint.host, "fd00::1");
  EXPECT_EQ(fixed.endpoint.port, 5000);
  EXPECT_EQ(fixed.node_rank, 0U);
  const LaunchPlan dynamic =
      PlanOf(ParseAccelerate(base + "rdzv_backend: c10d\nmachine_rank: 1\n"));
  EXPECT_EQ(dynamic.endpoint.port, 5000);
  EXPECT_EQ(dynamic.node_rank, std::nullopt);
}

TEST(Accelerate, Devices) {
  const std::string one = "distributed_type: 'NO'\n";
  EXPECT_THAT(VariablesOf(one), Contains(Pair("ACCELERATE_USE_CPU", "False")));
  const auto cpu = VariablesOf(one + "use_cpu: true\ndebug: true\nenable_cpu_affinity: yes\n");
  EXPECT_THAT(cpu, Contains(Pair("ACCELERATE_USE_CPU", "True")));
  EXPECT_THAT(cpu, Contains(Pair("KMP_BLOCKTIME", "1")));
  EXPECT_THAT(cpu, Contains(Pair("ACCELERATE_DEBUG_MODE", "true")));
  EXPECT_THAT(cpu, Not(Contains(Key("ACCELERATE_CPU_AFFINITY")))) << "as by accelerate";
  EXPECT_THAT(VariablesOf("distributed_type: MULTI_GPU\nnum_processes: 2\nuse_cpu: true\n"),
              Not(Contains(Key("ACCELERATE_USE_CPU"))));
  EXPECT_EQ(PlanOf(ParseAccelerate(one + "use_cpu: true\n")).omp_threads, 6U);
  EXPECT_THAT(VariablesOf(one + "gpu_ids: 1,3\n"), Contains(Pair("CUDA_VISIBLE_DEVICES", "1,3")));
  // The plan is made with what the workers will see.
  EXPECT_THAT(PlanOf(ParseAccelerate(one + "gpu_ids: 1,3\n", "--virtual_local_rank train.py"))
                  .devices.visible,
              ElementsAre("1", "3"));
}

TEST(Accelerate, Precision) {
  EXPECT_THAT(VariablesOf("distributed_type: NO\n"),
              Contains(Pair("ACCELERATE_MIXED_PRECISION", "no")));
  EXPECT_THAT(VariablesOf("distributed_type: NO\nmixed_precision: no\n"),
              Contains(Pair("ACCELERATE_MIXED_PRECISION", "no")));
  EXPECT_THAT(VariablesOf("distributed_type: NO\nfp16: true\n"),
              Contains(Pair("ACCELERATE_MIXED_PRECISION", "fp16")));
}

TEST(Accelerate, Fsdp) {
  const auto variables = VariablesOf(
      "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  offload_params: true\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_backward_prefetch: null\n");
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_USE_FSDP", "true")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_VERSION", "2")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_OFFLOAD_PARAMS", "true")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_SHARDING_STRATEGY", "FULL_SHARD")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_MIN_NUM_PARAMS", "100000000")));
  EXPECT_THAT(variables, Not(Contains(Key("FSDP_BACKWARD_PREFETCH"))));
}

TEST(Accelerate, ValuesAreWrittenAsPythonDoes) {
  const auto variables = VariablesOf(
      "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_min_num_params: 1.0e+8\n"
      "  fsdp_transformer_layer_cls_to_wrap: [A, 'B c', 1.50, no]\n  fsdp_ignored_modules: 1e-5\n"
      "  fsdp_sharding_strategy: 1_000\n  fsdp_auto_wrap_policy: 1.0e-5\n"
      "  fsdp_backward_prefetch: [0.10, 999999999999999.9, 2.50e-323, 1.0e+16, "
      "1.79769313486231570e+308, -0.0001,\n"
      "    123456.7890, 9007199254740993.0, 9.99e-5, 0.0]\n");
  EXPECT_THAT(
      variables,
      Contains(Pair("FSDP_BACKWARD_PREFETCH",
                    "[0.1, 999999999999999.9, 2.5e-323, 1e+16, 1.7976931348623157e+308, -0.0001, "
                    "123456.789, 9007199254740992.0, 9.99e-05, 0.0]")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_MIN_NUM_PARAMS", "100000000.0")));
  EXPECT_THAT(variables,
              Contains(Pair("FSDP_TRANSFORMER_CLS_TO_WRAP", "['A', 'B c', 1.5, False]")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_IGNORED_MODULES", "1e-5")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_SHARDING_STRATEGY", "1000")));
  EXPECT_THAT(variables, Contains(Pair("FSDP_AUTO_WRAP_POLICY", "1e-05")));
}

TEST(Accelerate, OtherAcceleratorsAreStartedAsGpusAre) {
  EXPECT_EQ(PlanOf(ParseAccelerate("distributed_type: MULTI_NPU\nnum_processes: 3\n")).worker_count,
            3U);
  EXPECT_THAT(VariablesOf("distributed_type: MULTI_XPU\nnum_processes: 2\ngpu_ids: 0,1\n"),
              Contains(Pair("ZE_AFFINITY_MASK", "0,1")));
}

TEST(Accelerate, OtherSections) {
  const auto variables = VariablesOf(
      "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: fp8\nfp8_config: {margin: 2, "
      "override_linear_precision: [true, false, false]}\nparallelism_config: "
      "{parallelism_config_tp_size: 2, parallelism_config_cp_size: 2}\n");
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_FP8_MARGIN", "2")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_FP8_OVERRIDE_FPROP", "True")));
  EXPECT_THAT(variables, Contains(Pair("PARALLELISM_CONFIG_TP_SIZE", "2")));
  EXPECT_THAT(variables, Contains(Pair("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "allgather")));
  EXPECT_THAT(variables, Not(Contains(Key("PARALLELISM_CONFIG_SP_SEQ_LENGTH"))));
  const auto megatron = VariablesOf(
      "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config: "
      "{megatron_lm_tp_degree: 2}\n");
  EXPECT_THAT(megatron, Contains(Pair("MEGATRON_LM_TP_DEGREE", "2")));
  EXPECT_THAT(megatron, Contains(Pair("ACCELERATE_USE_MEGATRON_LM", "true")));
}

TEST(Accelerate, WhatAccelerateLeavesOutIsAWarning) {
  const struct {
    const char* text;
    const char* warning;
  } kCases[] = {
      {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_backward_prefetch_policy: "
       "A}\n",
       ":3: fsdp_config.fsdp_backward_prefetch_policy has no effect"},
      {"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {train_batch_size: 8}\n",
       ":3: deepspeed_config.train_batch_size has no effect"},
      {"distributed_type: MULTI_GPU\nnum_processes: 2\nfp8_config: {a: 1}\n",
       ":3: fp8_config.a has no effect"},
      {"distributed_type: NO\ntpu_vm: [a]\n", ":2: tpu_vm has no effect: it is for TPUs"},
      {"distributed_type: NO\nipex_config: {ipex: false}\n", ":2: ipex_config.ipex has no effect"},
      {"distributed_type: NO\nenable_cpu_affinity: true\n", "export ACCELERATE_CPU_AFFINITY=1"},
  };
  for (const auto& c : kCases) {
    const CommandLine parsed = ParseAccelerate(c.text);
    EXPECT_THAT(parsed.warnings, ElementsAre(HasSubstr(c.warning))) << c.text;
    PlanOf(parsed);
  }
}

// The command line wins (CONFIG.md); so does Slurm's number of tasks.
TEST(Accelerate, TheNumberOfWorkersMayBeGivenElsewhere) {
  const std::string none = "distributed_type: MULTI_GPU\n";
  EXPECT_EQ(PlanOf(ParseAccelerate(none, "--nproc_per_node 2 train.py")).worker_count, 2U);
  const std::string odd =
      "distributed_type: MULTI_GPU\nnum_processes: 3\nnum_machines: 2\nmain_process_ip: h\n"
      "main_process_port: 1\n";
  EXPECT_EQ(PlanOf(ParseAccelerate(odd, "--nproc_per_node 2 train.py")).worker_count, 2U);
}

TEST(Accelerate, DeepSpeed) {
  const auto variables = VariablesOf(
      "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\ndeepspeed_config:\n"
      "  gradient_accumulation_steps: 1\n  offload_optimizer_device: NONE\n"
      "  zero3_init_flag: true\n  zero_stage: 2\n");
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_USE_DEEPSPEED", "true")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_DEEPSPEED_ZERO3_INIT", "true")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_CONFIG_DS_FIELDS",
                                       "gradient_accumulation_steps,offload_optimizer_device,"
                                       "zero3_init_flag,zero_stage,mixed_precision")));
}

TEST(Accelerate, Dynamo) {
  const auto variables = VariablesOf(
      "distributed_type: NO\ndynamo_config: {dynamo_backend: inductor, use_dynamic: yes}\n");
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR")));
  EXPECT_THAT(variables, Contains(Pair("ACCELERATE_DYNAMO_USE_DYNAMIC", "True")));
  EXPECT_THAT(VariablesOf("distributed_type: NO\ndynamo_backend: eager\n"),
              Contains(Pair("ACCELERATE_DYNAMO_BACKEND", "EAGER")));
}

TEST(Accelerate, WhatIsForTpusIsSaid) {
  EXPECT_THAT(
      ParseAccelerate("distributed_type: NO\ndowncast_bf16: yes\nmain_training_function: f\n")
          .warnings,
      ElementsAre(HasSubstr("default_config.yaml:2: downcast_bf16 has no effect"),
                  HasSubstr("default_config.yaml:3: main_training_function has no effect")));
}

TEST(Accelerate, RefusalsNameTheField) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"compute_environment: AMAZON_SAGEMAKER\n", "'AMAZON_SAGEMAKER' is for accelerate launch"},
      {"compute_environment: LOCAL_MACHINE\n", "distributed_type: is missing"},
      {"distributed_type: XLA\n", ":1: distributed_type: 'XLA' is for accelerate launch alone"},
      {"distributed_type: MULTI_GPU\n", "num_processes: says not how many processes"},
      {"distributed_type: MULTI_GPU\nnum_processes: -1\n", ":2: num_processes: says not how many"},
      {"distributed_type: MULTI_GPU\nnum_processes: two\n", ":2: num_processes: 'two' is not a"},
      {"distributed_type: MULTI_GPU\nnum_processes: 3\nnum_machines: 2\n",
       "main_process_ip: is missing"},
      {"distributed_type: MULTI_GPU\nnum_processes: 3\nnum_machines: 2\nmain_process_ip: h\n"
       "main_process_port: 1\n",
       "3 processes can't be divided evenly between 2 machines"},
      {"distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 2\n",
       "main_process_ip: is missing, and the job has 2 machines"},
      {"distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 2\nmain_process_ip: h\n",
       "main_process_port: is missing"},
      {"distributed_type: NO\nmixed_precision: int4\n", ":2: mixed_precision: 'int4' is no"},
      {"distributed_type: NO\nuse_cpu: maybe\n", ":2: use_cpu: 'maybe' is not true or false"},
      {"distributed_type: NO\nuse_cpu: [1]\n", ":2: use_cpu: must be one text or number"},
      {"distributed_type: NO\nnum_proceses: 2\n", ":2: num_proceses: is no field of accelerate"},
      {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config: 1\n", "fsdp_config: must be lines"},
      {"distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {sync_module_states: false}\n",
       "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states"},
      {"distributed_type: MULTI_CPU\nnum_processes: 2\nmpirun_config: {mpirun_hostfile: a}\n",
       "mpirun_config.mpirun_hostfile: ddprun starts the processes itself"},
      {"distributed_type: DEEPSPEED\nnum_processes: 2\nnum_machines: 2\nmain_process_ip: h\n"
       "main_process_port: 1\ndeepspeed_config: {deepspeed_multinode_launcher: pdsh}\n",
       "set deepspeed_multinode_launcher: standard"},
  };
  for (const auto& c : kCases) {
    const ExitNow exit = ExitOf(ParseAccelerate(c.text));
    EXPECT_EQ(exit.status, 2) << c.text << exit.text;
    EXPECT_THAT(exit.text, HasSubstr(c.error)) << c.text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
