#!/usr/bin/env python3
"""Files of accelerate, drawn at random: workers of ddprun get the variables that accelerate's own code makes of a file.

    DDPRUN_TEST_DRAWS=500 DDPRUN_TEST_SEED=7 python3 tests/python/accelerate_files_test.py
"""

import json
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, LAUNCHERS, PATIENCE, BedTestCase  # noqa: E402

DRAWS = int(os.environ.get("DDPRUN_TEST_DRAWS", "40"))
SEED = int(os.environ.get("DDPRUN_TEST_SEED", "1"))
PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_", "KMP_", "CUDA_VISIBLE_DEVICES")

# What `accelerate launch` sets before it starts anything; libraries for FP8 count as installed.
ORACLE = r"""
import json, os, sys, warnings
warnings.simplefilter("ignore")
from accelerate.commands import launch
from accelerate.utils import launch as environment
environment.is_fp8_available = lambda: True
environment.is_port_in_use = lambda port: False
plain = dict(os.environ)
answers = {}
for name in sys.argv[1:]:
    try:
        args = launch.launch_command_parser().parse_args(["--config_file", name, "train.py"])
        args, defaults, mixed = launch._validate_launch_command(args)
        if args.use_deepspeed:
            fields = list(defaults.deepspeed_config) + (["mixed_precision"] if mixed else [])
            args.deepspeed_fields_from_accelerate_config = ",".join(fields)
            made = environment.prepare_deepspeed_cmd_env(args)[1]
        elif args.use_fsdp or args.use_megatron_lm or args.multi_gpu:
            made = environment.prepare_multi_gpu_env(args)
        else:
            made = environment.prepare_simple_launcher_cmd_env(args)[1]
        answers[name] = {key: value for key, value in made.items() if plain.get(key) != value}
    except Exception as error:
        answers[name] = "%s: %s" % (type(error).__name__, error)
json.dump(answers, sys.stdout)
"""

BOOLEANS = ("true", "false", "True", "'true'", "yes")


def fields(text):
    """{name: its values} of lines "name: value | value"; "bool" is all kinds of it."""
    named = {}
    for line in text.strip().splitlines():
        name, values = line.strip().split(": ", 1)
        named[name] = [value for word in values.split(" | ") for value in (BOOLEANS if word == "bool" else (word,))]
    return named


FSDP = fields("""
    version: 1 | 2 | '2'
    sharding_strategy: FULL_SHARD | SHARD_GRAD_OP | 1
    reshard_after_forward: bool | FULL_SHARD
    offload_params: bool
    min_num_params: 2000 | 1.0e+8 | 1e8 | 1_000 | null
    auto_wrap_policy: TRANSFORMER_BASED_WRAP | NO_WRAP | null
    transformer_layer_cls_to_wrap: BertLayer | 'A,B' | [A, B c] | null
    backward_prefetch: BACKWARD_PRE | NO_PREFETCH | null
    backward_prefetch_policy: BACKWARD_PRE
    state_dict_type: SHARDED_STATE_DICT | null
    forward_prefetch: bool
    use_orig_params: bool
    cpu_ram_efficient_loading: bool
    sync_module_states: bool | null
    activation_checkpointing: bool
    activation_checkpointing_offload: bool
    ignored_modules: head | 'a|b'
    of_tomorrow: 1""")
DEEPSPEED = fields("""
    zero_stage: 0 | 2 | 3 | null
    gradient_accumulation_steps: 1 | auto | 16
    gradient_clipping: 1.0 | 1 | auto | 0.50 | .5 | 1.0e-5 | null
    offload_optimizer_device: none | cpu | NVME
    offload_param_device: none | cpu
    offload_optimizer_nvme_path: /nvme
    zero3_init_flag: bool
    zero3_save_16bit_model: bool
    deepspeed_config_file: ds.json
    deepspeed_multinode_launcher: standard | pdsh
    deepspeed_hostfile: hosts
    deepspeed_moe_layer_cls_names: A | [A, B]
    train_batch_size: 8
    offload_of_tomorrow: {device: cpu, pin: true}""")
DYNAMO = fields("""
    backend: inductor | 'NO' | EAGER
    mode: default | max-autotune
    use_fullgraph: bool
    use_dynamic: bool
    use_regional_compilation: bool
    of_tomorrow: x""")
FP8 = fields("""
    backend: TE | MSAMP | AO
    amax_compute_algo: max | most_recent
    amax_history_len: 100 | 1024
    format: E4M3 | HYBRID
    interval: 1 | 2
    margin: 0 | 1
    opt_level: O1
    override_linear_precision: [true, false, false]
    use_autocast_during_eval: bool
    pad_inner_dim: true
    of_tomorrow: x | null""")
PARALLELISM = fields("""
    dp_replicate_size: 1 | 2
    dp_shard_size: 2
    tp_size: 1 | 2
    cp_size: 1 | 2
    cp_backend: torch
    cp_comm_strategy: alltoall | allgather
    sp_size: 1 | 4
    sp_backend: deepspeed
    sp_seq_length: 4096
    sp_seq_length_is_variable: bool
    sp_attn_implementation: sdpa | flash_attention_2
    of_tomorrow: 1""")
MEGATRON = fields("""
    tp_degree: 1 | 2
    pp_degree: 2
    num_micro_batches: 2 | null
    gradient_clipping: 1.0 | 0.1
    recompute_activations: bool
    sequence_parallelism: bool
    use_distributed_optimizer: bool
    of_tomorrow: 1""")
SECTIONS = {"fsdp_config": ("fsdp_", FSDP), "deepspeed_config": ("", DEEPSPEED), "dynamo_config": ("dynamo_", DYNAMO),
            "fp8_config": ("fp8_", FP8), "parallelism_config": ("parallelism_config_", PARALLELISM),
            "megatron_lm_config": ("megatron_lm_", MEGATRON)}
# accelerate fills in a missing prefix of these.
PREFIXED = ("fsdp_config", "dynamo_config", "fp8_config")
KINDS = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU",
         "MULTI_NEURON", "FSDP", "FSDP", "FSDP", "DEEPSPEED", "DEEPSPEED", "MEGATRON_LM")
TOP = fields("""
    compute_environment: LOCAL_MACHINE
    debug: true | false | True
    downcast_bf16: 'no'
    enable_cpu_affinity: true | false
    gpu_ids: all | '0,1' | null
    machine_rank: 0
    main_training_function: main
    mixed_precision: 'no' | fp16 | bf16 | fp8 | FP16 | null
    fp16: true | false
    num_machines: 1
    rdzv_backend: static
    same_network: true | false
    tpu_env: []
    tpu_name: null | pod
    tpu_use_cluster: false | true
    tpu_use_sudo: false
    use_cpu: true | false
    dynamo_backend: 'NO' | inductor
    main_process_port: 29533
    commands: null
    mpirun_config: {}""")


def draw(chance):
    """A file's text."""
    kind = chance.choice(KINDS)
    lines = [f"distributed_type: '{kind}'", f"num_processes: {1 if kind == 'NO' else 2}"]
    for key, values in TOP.items():
        # Which variable names the devices depends on those of the machine.
        if chance.random() < 0.4 and not (key == "gpu_ids" and kind.startswith("MULTI_") and kind != "MULTI_GPU"):
            lines.append(f"{key}: {chance.choice(values)}")
    for section, (prefix, fields) in SECTIONS.items():
        if chance.random() < 0.5:
            continue
        drawn = [(key, chance.choice(values)) for key, values in fields.items() if chance.random() < 0.4]
        chance.shuffle(drawn)
        if not drawn:
            lines.append(f"{section}: {{}}")
            continue
        lines.append(f"{section}:")
        for key, value in drawn:
            full = key if section in PREFIXED and chance.random() < 0.3 else prefix + key
            lines.append(f"  {full}: {value}")
    return "\n".join(lines) + "\n"


@unittest.skipUnless(os.access(LAUNCHERS, os.X_OK), "accelerate isn't installed: scripts/setup")
class AccelerateFiles(BedTestCase):
    def expected(self, names):
        result = subprocess.run([LAUNCHERS, "-c", ORACLE, *names], capture_output=True, text=True, cwd=self.bed.folder,
                                env=self.bed.environment, check=True)
        return json.loads(result.stdout)

    def seen(self, name, *options):
        """The variables of a worker, or None and why there is none."""
        result = subprocess.run([DDPRUN, "--config", name, "--nproc_per_node", "1", *options, "--no_python", "env", "-0"],
                                capture_output=True, text=True, cwd=self.bed.folder, env=self.bed.environment, timeout=PATIENCE,
                                check=False)
        if result.returncode != 0:
            return None, result.stderr
        pairs = [entry.split("=", 1) for entry in result.stdout.split("\0") if "=" in entry]
        return {key: value for key, value in pairs if key.startswith(PREFIXES)}, result.stderr

    def test_variables_are_accelerates(self):
        chance = random.Random(SEED)
        names = [self.bed.write(f"{number}.yaml", draw(chance)) for number in range(DRAWS)]
        accepted = 0
        for name, made in self.expected(names).items():
            with self.subTest(name=os.path.basename(name), seed=SEED):
                with open(name, encoding="utf-8") as source:
                    text = source.read()
                if isinstance(made, str):  # accelerate doesn't take it
                    continue
                accepted += 1
                seen, words = self.seen(name)
                self.assertIsNotNone(seen, f"{words}\n{text}")
                made = {key: value for key, value in made.items() if key.startswith(PREFIXES)}
                self.assertEqual(made, seen, text)
                for line in text.splitlines():
                    key = line.split(":")[0].strip()
                    if key.endswith("of_tomorrow") and "fp8" not in text:
                        self.assertIn(f".{key} has no effect", words)
        self.assertGreater(accepted, DRAWS // 2)

    def test_what_accelerate_refuses(self):
        """Negative control: a key at the top that it doesn't know ends accelerate, too."""
        name = self.bed.write("wrong.yaml", "distributed_type: 'NO'\nof_tomorrow: 1\n")
        self.assertIn("unknown keys", self.expected([name])[name])
        seen, words = self.seen(name)
        self.assertIsNone(seen)
        self.assertIn("of_tomorrow: is no field of accelerate", words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
