#!/usr/bin/env python3
"""Options, files and variables become a worker's environment and arguments."""

import json
import os
import pty
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, BedTestCase, read_until  # noqa: E402

# One line of JSON for each worker, in one write(2).
REPORT = """import json, os, sys
os.write(1, (json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}) + "\\n").encode())
"""


class OptionsTestCase(BedTestCase):
    def ddprun(self, arguments, env=None, status=0):
        result = subprocess.run(
            [DDPRUN, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            env={**self.environment(), **(env or {})}, cwd=self.bed.folder, check=False)
        self.assertEqual(status, result.returncode, result.stderr)
        return result

    def environment(self):
        plain = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TORCH_ELASTIC_WORKER_IDENTICAL")
        return {name: value for name, value in self.bed.environment.items()
                if name not in plain and not name.startswith(("ACCELERATE_", "TORCH_ELASTIC_"))}

    def workers(self, options, arguments=(), env=None):
        """What each worker saw, by rank."""
        script = self.bed.write("report.py", REPORT)
        lines = self.ddprun([*options, script, *arguments], env).stdout.splitlines()
        return sorted(map(json.loads, lines), key=lambda worker: int(worker["env"]["RANK"]))

    def seen(self, name, options, env=None):
        return [worker["env"].get(name) for worker in self.workers(options, env=env)]


class WorkerOptions(OptionsTestCase):
    def test_macros(self):
        words = ["${local_rank}", "$local_rank", "${x}", "$$y"]
        self.assertEqual([["0", "0", "${x}", "$y"], ["1", "1", "${x}", "$y"]],
                         [worker["argv"] for worker in self.workers(["--nproc_per_node", 2], words)])

    def test_bytes_that_are_no_text(self):
        word = os.fsdecode(b"a\xffb\xc3")
        script = self.bed.write(f"{word}.py", REPORT)
        for name in (word, "a\nb", "x" * 300):
            options = ["--rdzv_id", name, "--role", name]
            for more in ([], ["--warm", "off", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]):
                worker = json.loads(self.ddprun([*options, *more, script, word]).stdout)
                self.assertEqual([word], worker["argv"])
                self.assertEqual(name, worker["env"]["TORCHELASTIC_RUN_ID"])
                self.assertEqual(name, worker["env"]["ROLE_NAME"])

    def test_what_torchrun_takes_and_does_not_know(self):
        script = self.bed.write("report.py", REPORT)
        result = self.ddprun(["--max_restarts", 10**10, "--local_ranks_filter=-1", "--rdzv_conf", "timeout=-1", script])
        self.assertEqual("", result.stdout)
        for said in ("timeout '-1' is ignored", "names no worker"):
            self.assertEqual(1, result.stderr.count(said), result.stderr)
        self.assertEqual(2, len(result.stderr.splitlines()), result.stderr)

    def test_debug(self):
        self.assertEqual(["INFO"], self.seen("NCCL_DEBUG", ["--debug"]))
        self.assertEqual(["DETAIL"], self.seen("TORCH_DISTRIBUTED_DEBUG", ["--debug"]))
        self.assertEqual(["WARN"], self.seen("NCCL_DEBUG", ["--debug"], {"NCCL_DEBUG": "WARN"}))
        self.assertEqual([None], self.seen("NCCL_DEBUG", []))

    def test_deepspeeds_variables(self):
        """Set as DeepSpeed's launcher sets them, for a script with an option that asks for DeepSpeed."""
        names = ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE")
        for told, values in ((["--use_deepspeed"], ["0", "1", "2"]), ([], [None] * 3)):
            worker = self.workers(["--nproc_per_node", 2], told)[1]["env"]
            self.assertEqual(values, [worker.get(name) for name in names])

    def test_virtual_local_rank(self):
        options = ["--virtual-local-rank", "--nproc-per-node", 2]
        plain = self.workers(options, ["${local_rank}"])
        self.assertEqual(["0", "0"], [worker["env"]["LOCAL_RANK"] for worker in plain])
        self.assertEqual(["0", "1"], [worker["env"]["CUDA_VISIBLE_DEVICES"] for worker in plain])
        self.assertEqual([["0"], ["1"]], [worker["argv"] for worker in plain])
        self.assertEqual(["5", "7"], self.seen("CUDA_VISIBLE_DEVICES", options, {"CUDA_VISIBLE_DEVICES": "5, 7"}))
        # Without the option nothing is changed.
        self.assertEqual(["5, 7"] * 2, self.seen("CUDA_VISIBLE_DEVICES", options[1:], {"CUDA_VISIBLE_DEVICES": "5, 7"}))
        script = self.bed.write("report.py", REPORT)
        result = self.ddprun([*options, script], {"CUDA_VISIBLE_DEVICES": "5"}, status=1)
        self.assertIn("CUDA_VISIBLE_DEVICES lists 1", result.stderr)

    def test_omp_threads(self):
        two = ["--nproc_per_node", 2]
        self.assertEqual(["1", "1"], self.seen("OMP_NUM_THREADS", two))
        self.assertEqual(["5", "5"], self.seen("OMP_NUM_THREADS", two, {"OMP_NUM_THREADS": "5"}))
        self.assertEqual(["3", "3"], self.seen("OMP_NUM_THREADS", [*two, "--omp_threads", 3]))
        self.assertEqual([None], self.seen("OMP_NUM_THREADS", []))

    def test_omp_threads_are_said_in_one_line(self):
        script = self.bed.write("report.py", REPORT)
        self.assertEqual(1, len(self.ddprun(["--nproc_per_node", 2, script]).stderr.splitlines()))
        self.assertEqual("", self.ddprun([script]).stderr)

    def test_identical_workers(self):
        options = ["--nproc_per_node", 2, "--role", "a"]
        for env in ({}, {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}):
            self.assertEqual(["0", "1"], self.seen("ROLE_RANK", options, env))
            self.assertEqual(["2", "2"], self.seen("ROLE_WORLD_SIZE", options, env))

    def test_local_rank_argument_of_the_old_launcher(self):
        workers = self.workers(["--use_env=false", "--nproc_per_node", 2], ["a"])
        self.assertEqual([["--local-rank=0", "a"], ["--local-rank=1", "a"]], [worker["argv"] for worker in workers])

    def test_signals_as_given(self):
        self.assertEqual(["SIGUSR1,SIGTERM"], self.seen("TORCHELASTIC_SIGNALS_TO_HANDLE",
                                                        ["--signals-to-handle", "SIGUSR1,SIGTERM"]))

    def test_flags_of_the_environment_take_words(self):
        self.assertEqual(["0"], self.seen("CUDA_VISIBLE_DEVICES", [], {"PET_VIRTUAL_LOCAL_RANK": "true"}))
        self.assertEqual([None], self.seen("CUDA_VISIBLE_DEVICES", [], {"PET_VIRTUAL_LOCAL_RANK": "no"}))


class Files(OptionsTestCase):
    def test_precedence(self):
        path = self.bed.write("job.yaml", "role: file\nnproc_per_node: 2\n")
        options = ["--config", path]
        self.assertEqual(["file"] * 2, self.seen("ROLE_NAME", options))
        self.assertEqual(["variable"] * 2, self.seen("ROLE_NAME", options, {"PET_ROLE": "variable"}))
        self.assertEqual(["line"] * 2, self.seen("ROLE_NAME", [*options, "--role=line"], {"PET_ROLE": "variable"}))
        self.assertEqual(["default"], self.seen("ROLE_NAME", []))

    def test_script_and_arguments(self):
        script = self.bed.write("report.py", REPORT)
        path = self.bed.write("job.yaml", f"script: {script}\nargs: [a, '${{local_rank}}', 'b c']\n")
        worker = json.loads(self.ddprun(["--config", path]).stdout)
        self.assertEqual(["a", "0", "b c"], worker["argv"])

    def test_mistakes_name_the_line(self):
        path = self.bed.write("job.yaml", "role: a\nnproc_per_nodes: 2\n")
        result = self.ddprun(["--config", path], status=2)
        self.assertIn("job.yaml:2: nproc_per_nodes is no option of ddprun; did you mean nproc_per_node?", result.stderr)

    def test_accelerate(self):
        path = self.bed.write("default_config.yaml", """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_offload_params: true
mixed_precision: bf16
num_machines: 1
num_processes: 2
""")
        options = ["--config", path]
        self.assertEqual(["bf16"] * 2, self.seen("ACCELERATE_MIXED_PRECISION", options))
        self.assertEqual(["true"] * 2, self.seen("FSDP_OFFLOAD_PARAMS", options))
        mine = {"ACCELERATE_MIXED_PRECISION": "fp16"}
        self.assertEqual(["fp16"] * 2, self.seen("ACCELERATE_MIXED_PRECISION", options, mine))


class ConfigCommand(OptionsTestCase):
    def test_writes_a_job_that_runs(self):
        script = self.bed.write("report.py", REPORT)
        self.ddprun(["config", "--output", "job.yaml", "--nproc_per_node", 2, "--role", "r s", script, "-x", "${local_rank}"])
        lines = self.ddprun(["--config", "job.yaml"]).stdout.splitlines()
        workers = sorted(map(json.loads, lines), key=lambda worker: worker["argv"])
        self.assertEqual([["-x", "0"], ["-x", "1"]], [worker["argv"] for worker in workers])
        self.assertEqual("r s", workers[0]["env"]["ROLE_NAME"])

    def test_overwrites_by_force_alone(self):
        path = self.bed.write("job.yaml", "mine\n")
        result = self.ddprun(["config", "--output", path, "--nnodes", 2], status=1)
        self.assertIn("is there already; --force replaces it", result.stderr)
        with open(path, encoding="utf-8") as source:
            self.assertEqual("mine\n", source.read())
        self.ddprun(["config", "--output", path, "--force", "--nnodes", 2])
        with open(path, encoding="utf-8") as source:
            self.assertIn("nnodes: 2\n", source.read())
        self.assertEqual(["job.yaml"], [name for name in os.listdir(self.bed.folder) if name.startswith("job.yaml")])

    def test_where_it_can_not_write(self):
        self.assertIn("No such file", self.ddprun(["config", "--output", "no/job.yaml", "--nnodes", 2], status=1).stderr)

    def test_secrets_are_for_the_user(self):
        for options, mode in (([], 0o644), (["--token", "s"], 0o600)):
            self.ddprun(["config", "--force", "--output", "job.yaml", "--nnodes", 2, *options])
            held = stat.S_IMODE(os.stat(self.bed.path("job.yaml")).st_mode)
            self.assertEqual(0, held & ~mode, oct(held))

    def test_standard_output(self):
        self.assertIn("nnodes: 2\n", self.ddprun(["config", "--output", "-", "--nnodes", 2]).stdout)

    def test_needs_options_or_a_terminal(self):
        self.assertIn("nothing to write", self.ddprun(["config"], status=2).stderr)

    def test_questions_in_a_terminal(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([DDPRUN, "config", "--output", "job.yaml"], stdin=theirs, stdout=theirs, stderr=theirs,
                                   env=self.environment(), cwd=self.bed.folder, start_new_session=True)
        os.close(theirs)
        with open(ours, "r+b", buffering=0) as terminal:
            for question, answer in ((b"Machines", b"0"), (b"at least 1 node\r?\nMachines", b"1"), (b"Workers", b"2"),
                                     (b"Restarts", b""), (b"logs", b""), (b"Script", b"")):
                read_until(terminal, question + rb"[^\n]*: $", PATIENCE)
                terminal.write(answer + b"\n")
            read_until(terminal, b"wrote job.yaml", PATIENCE)
            self.assertEqual(0, process.wait(timeout=PATIENCE))
        with open(self.bed.path("job.yaml"), encoding="utf-8") as source:
            self.assertTrue(source.read().endswith("nnodes: 1\nnproc_per_node: 2\nmax_restarts: 3\n"))


if __name__ == "__main__":
    unittest.main()
