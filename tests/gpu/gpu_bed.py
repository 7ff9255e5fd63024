"""The fixture of the GPU checks: one NVIDIA GPU and NCCL, or, for their twins, the CPU, Gloo and a driver's library of our own.

A check is a file NAME_check.py with unittest's cases, in the list of checks.py. The environment says where it runs and with what:
DDPRUN_GPU_PLACE is gpu or cpu (as without it), DDPRUN_GPU_PYTHON the Python with torch, and the rest is what other tests take
(scripts/lib/gpu_check.py sets all of it).
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests" / "gpu"
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "scripts" / "lib")]

import bed  # noqa: E402
from bed import DDPRUN, SLOW, BedTestCase  # noqa: E402, F401

ON_GPU = os.environ.get("DDPRUN_GPU_PLACE") == "gpu"
DEVICE, BACKEND = ("cuda", "nccl") if ON_GPU else ("cpu", "gloo")
PYTHON = os.environ.get("DDPRUN_GPU_PYTHON", bed.TORCH_PYTHON)
EXAMPLES = Path(os.environ.get("DDPRUN_EXAMPLES_BIN", ROOT / "build/release/bin"))
DIGITS = os.environ.get("DDPRUN_DIGITS", os.path.join(bed.CACHE, "digits/digits.csv.gz"))
TEXT = ROOT / "tests" / "support" / "bed.py"  # any, for a model of text
FAKE_DRIVER = os.environ.get("DDPRUN_FAKE_DRIVER", "")  # the folder of a libnvidia-ml.so.1 that reads GPUs from a file
# A program of another project that found the installed package, with its libraries and plug-ins; only in a bundle.
INSTALLED = Path(os.environ.get("DDPRUN_INSTALLED") or "/nowhere")
NCCL_HOST = os.environ.get("DDPRUN_NCCL_HOST", "")
NCCL_PLUGIN = os.environ.get("DDPRUN_NCCL_PLUGIN", "")
RANKS = 3  # that share the one GPU
PATIENCE = 60 * SLOW
# The one GPU of a twin.
FAKE_GPU = ("name=NVIDIA H100 80GB HBM3;uuid=GPU-aa;pci=00000000:01:00.0;memory_mib=81559;free_mib=81000;utilization=3;"
            "temperature=40")


def figure(name, value, unit):
    """A figure of this check for results.json, beside whether it has passed."""
    print("FIGURE " + json.dumps({"name": name, "value": round(value, 4), "unit": unit}), flush=True)


def nvidia_smi(*fields, of="gpu"):
    """Lines of fields, as text; `of`: gpu or compute-apps."""
    command = ["nvidia-smi", f"--query-{of}={','.join(fields)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return [[field.strip() for field in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]


def memory_used_mib():
    """The fields of the GPU that checks use."""
    return int(nvidia_smi("memory.used")[0][0])


class GpuCase(BedTestCase):
    """A case with a bed whose jobs have the GPU, all ranks the same one."""

    def setUp(self):
        super().setUp()
        self.bed.forget_warm()
        self.bed.environment["PYTHON_EXEC"] = PYTHON
        self.bed.environment.update(shared_gpu() if ON_GPU else self.fake_gpu())

    def fake_gpu(self, *lines):
        """The environment of a node whose driver has these GPUs (tests/support/fake_nvml.cc); one of no work without any."""
        path = self.bed.write("gpus", "".join(line + "\n" for line in lines or (FAKE_GPU,)))
        libraries = ":".join(filter(None, (FAKE_DRIVER, os.environ.get("LD_LIBRARY_PATH"))))
        return {"LD_LIBRARY_PATH": libraries, "FAKE_NVML_GPUS": path}

    def use_fake_smi(self, **variables):
        """A twin's nvidia-smi (programs/nvidia_smi.py), first on this process's PATH for the length of the case."""
        os.mkdir(self.bed.path("tools"))
        stand_in = shlex.join([sys.executable, self.program("nvidia_smi.py")])
        self.bed.write("tools/nvidia-smi", f"#!/bin/sh\nexec {stand_in} \"$@\"\n", mode=0o755)
        path = os.pathsep.join([self.bed.path("tools"), os.environ["PATH"]])
        patched = mock.patch.dict(os.environ, {"PATH": path, "FAKE_NVML_GPUS": self.bed.path("gpus"), **variables})
        patched.start()
        self.addCleanup(patched.stop)

    def program(self, name):
        return str(HERE / "programs" / name)

    def launch(self, ranks, options, *command, name="agent", **process):
        """A job of one node; `command`: a script of programs/ and its arguments, or a path."""
        script = self.program(command[0]) if os.sep not in str(command[0]) else command[0]
        words = ["--standalone", "--nproc_per_node", ranks, *options, "--event_log", self.bed.events.path, script, *command[1:]]
        return self.bed.run(name, words, **process)

    def train(self, ranks, options=(), arguments=(), **process):
        """programs/train.py, which writes a line of the journal for each step."""
        return self.launch(ranks, options, "train.py", "--device", DEVICE, "--backend", BACKEND, "--journal",
                           self.bed.journal.path, *arguments, **process)

    def steps(self, **fields):
        self.bed.follower.refresh()
        return self.bed.journal.find("step", **fields)

    def wait_for_step(self, step, ranks, alive, **fields):
        """The lines of that step, or of a later one where it was done before, once so many ranks have done it."""
        def done():
            by_rank = {line["rank"]: line for line in self.steps(**fields) if line["step"] >= step}
            return sorted(by_rank.values(), key=lambda line: line["rank"]) if len(by_rank) == ranks else None
        return self.bed.wait(done, f"step {step} of {ranks} ranks", PATIENCE, alive)

    def finish_job(self, agent, status=0):
        self.assertEqual(status, agent.wait(PATIENCE), agent.text()[-3000:])


def shared_gpu():
    """Each rank is a host of its own to NCCL, which then lets several use one GPU."""
    return {"LD_PRELOAD": NCCL_HOST, "DDPRUN_NCCL_PLUGIN": NCCL_PLUGIN, "CUDA_VISIBLE_DEVICES": "0",
            "NCCL_SOCKET_IFNAME": "lo"}


def within(seconds, condition, every=0.05):
    """Whether a condition comes true that no file and no process reports (nvidia-smi's output): it is polled."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(every)  # there is no event to wait for
    return True
