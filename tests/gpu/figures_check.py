#!/usr/bin/env python3
"""The card's figures while a job trains: `ddprun status`, the page's metrics and `ddprun top` beside nvidia-smi's."""

import json
import re
import signal
import sys
import unittest
import urllib.request

from gpu_bed import DDPRUN, ON_GPU, PATIENCE, ROOT, SLOW, figure
from cards import CardCase, number

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from bed import free_port  # noqa: E402
from top_test import Terminal  # noqa: E402

MIB = 2 ** 20
HELD_MIB = 2048 if ON_GPU else 1
# Products of 1 to 5 ms each, so that between two kernels there is next to nothing.
PRODUCTS = 40 if ON_GPU else 1
# What the driver may take or give back between two questions: a context that grows, pages of 2 MiB.
MARGIN_MIB = 64 if ON_GPU else 0
# Each of the two is a mean over up to a second; the last second may have ended anywhere.
BUSY_APART = 25 if ON_GPU else 0
FIELDS = ("memory.used", "memory.reserved", "memory.total", "utilization.gpu")


class Figures(CardCase):
    """Can fail: the block is seen as so much more than before, and a twin's figures are exact."""

    def setUp(self):
        super().setUp()
        self.before = self.ask()
        self.port = free_port()
        if ON_GPU:
            self.bed.environment["CUDA_VISIBLE_DEVICES"] = "0"
        options = ("--nnodes", 1, "--nproc_per_node", 1, "--rdzv_id", "figures", "--rdzv_endpoint", f"127.0.0.1:{self.port}",
                   "--status_page", 0, "--event_log", self.bed.events.path)
        device, backend = ("cuda", "nccl") if ON_GPU else ("cpu", "gloo")
        self.agent = self.bed.run("agent", [
            *options, self.program("train.py"), "--device", device, "--backend", backend, "--journal", self.bed.journal.path,
            "--steps", 1000000, "--hold_mib", HELD_MIB, "--products", PRODUCTS, "--pause", 0 if ON_GPU else 0.01])
        self.url = self.bed.event("status_page", alive=[self.agent], timeout=PATIENCE)["url"]

    def ask(self):
        """nvidia-smi's answer, as numbers."""
        return {field: number(text) for field, text in self.card(*FIELDS).items()}

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10 * SLOW) as answer:
            return answer.read().decode()

    def gpu(self, later_than=0):
        """The card in the page's words, once the job has trained for two more heartbeats."""
        def shown():
            job = next(iter(json.loads(self.get("api/v1/status"))["jobs"]), None)
            gpus = job["nodes"][0]["gpus"] if job and job["nodes"] else []
            steps = [int(worker["step"]) for node in job["nodes"] for worker in node["workers"]] if gpus else []
            return (gpus, steps[0]) if gpus and steps and steps[0] > later_than else None
        return self.bed.wait(shown, f"the GPU after step {later_than}", PATIENCE, [self.agent])

    def assert_memory(self, what, used_mib, before, after, rounding=0):
        """NVML's first question, which ddprun asks, counts what the driver keeps for itself; nvidia-smi names that apart."""
        least = min(before["memory.used"], after["memory.used"]) - MARGIN_MIB - rounding
        most = max(look["memory.used"] + look["memory.reserved"] for look in (before, after)) + MARGIN_MIB + rounding
        self.assertTrue(least <= used_mib <= most, f"{what}: {used_mib} MiB, nvidia-smi: {before}, {after}")

    def assert_busy(self, what, percent, before, after):
        for look in (before, after):
            self.assertLessEqual(abs(percent - look["utilization.gpu"]), BUSY_APART, what)

    def test_all_say_what_nvidia_smi_says(self):
        _, step = self.gpu()
        for _ in range(2):  # heartbeats, with the block held and the GPU busy for a whole sample
            _, step = self.gpu(later_than=step)
        before = self.ask()
        (gpu,), step = self.gpu(later_than=step)
        metrics = self.get("metrics")
        status = self.run_ddprun("status", "--rdzv_endpoint", f"127.0.0.1:{self.port}").stdout
        told = self.run_json("status", "--rdzv_endpoint", f"127.0.0.1:{self.port}")["jobs"][0]["nodes"][0]["gpus"]
        terminal = Terminal(self.bed, [DDPRUN, "top", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--interval", "0.2"],
                            columns=100, env=self.bed.environment)
        self.addCleanup(terminal.close)
        screen = terminal.wait(lambda lines: "GPU" in lines[3], "the GPU")
        terminal.type(b"q")
        self.assertEqual(0, terminal.process.wait(PATIENCE))
        after = self.ask()
        self.check_numbers("the page", gpu, before, after)
        self.assertEqual(1, len(told))
        self.check_numbers("status --json", told[0], before, after)
        self.check_metrics(metrics, before, after)
        self.check_text("status", re.search(r"GPU 0: (\d+)%, ([\d.]+)/([\d.]+) GiB", status), before, after)
        self.check_text("top", re.search(r"1 GPU (\d+)%, ([\d.]+)/([\d.]+) GiB", screen[3]), before, after)
        self.check_text("top's rank", re.search(r"(\d+)% +([\d.]+)/([\d.]+)", screen[6]), before, after)
        figure("memory_used", int(gpu["memory_used_bytes"]) / MIB, "MiB")
        figure("memory_used_of_nvidia_smi", after["memory.used"], "MiB")
        figure("utilization", gpu["utilization_percent"], "%")
        figure("utilization_of_nvidia_smi", after["utilization.gpu"], "%")
        if ON_GPU:
            self.assertGreaterEqual(int(gpu["memory_used_bytes"]) / MIB, self.before["memory.used"] + HELD_MIB)
            self.assertGreater(gpu["utilization_percent"], 50)
        self.agent.signal(signal.SIGTERM)
        self.agent.wait(PATIENCE)
        self.assertNotEqual([], self.steps(rank=0))

    def check_numbers(self, what, gpu, before, after):
        self.assertEqual(0, gpu["index"], what)
        self.assertLessEqual(abs(int(gpu["memory_total_bytes"]) / MIB - after["memory.total"]), 1, what)
        self.assert_memory(what, int(gpu["memory_used_bytes"]) / MIB, before, after)
        self.assert_busy(what, gpu["utilization_percent"], before, after)

    def check_metrics(self, metrics, before, after):
        values = {name: float(value) for name, value in re.findall(
            r'(?m)^ddprun_gpu_(\w+)\{run_id="figures",node="[^"]+",gpu="0"\} (\S+)$', metrics)}
        self.assertLessEqual(abs(values["memory_total_bytes"] / MIB - after["memory.total"]), 1)
        self.assert_memory("metrics", values["memory_used_bytes"] / MIB, before, after)
        self.assert_busy("metrics", 100 * values["utilization_ratio"], before, after)

    def check_text(self, what, found, before, after):
        self.assertIsNotNone(found, what)
        percent, used, total = map(float, found.groups())
        self.assert_busy(what, percent, before, after)
        self.assert_memory(what, used * 1024, before, after, rounding=0.05 * 1024 + 1)
        self.assertLessEqual(abs(total * 1024 - after["memory.total"]), 0.05 * 1024 + 1, what)


if __name__ == "__main__":
    unittest.main(verbosity=2)
