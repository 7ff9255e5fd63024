#!/usr/bin/env python3
"""GPUs of a running job, with a driver of our own (docs/STATUS.md): `ddprun status`, `top`, the page's data and the metrics."""

import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW  # noqa: E402
from status_test import CHROMIUM, PROMTOOL, StatusTestCase  # noqa: E402
from top_test import Terminal  # noqa: E402

MIB = 2 ** 20
BUSY = "memory_mib=81920;free_mib=20480;utilization=97"
CALM = "memory_mib=81920;free_mib=81000;utilization=3"
SLICED = "memory_mib=40960;free_mib=30720;mig=1"  # its driver doesn't report the utilization


class GpuFigures(StatusTestCase):
    def start_with_gpus(self):
        """One node has a GPU for each worker; on the other, workers see the last two of three, one without a utilization."""
        self.start_job(envs=(self.with_gpus("gpus0", BUSY, CALM),
                             self.with_gpus("gpus1", CALM, SLICED + ";uuid=GPU-bb", BUSY + ";uuid=GPU-cc",
                                            CUDA_VISIBLE_DEVICES="GPU-c,GPU-bb,2")))
        job = self.wait_for_job(lambda job: [len(node["gpus"]) for node in job["nodes"]] == [2, 2], "GPUs of both nodes")
        return sorted(job["nodes"], key=lambda node: min(gpu["index"] for gpu in node["gpus"]))

    def wait_for_later_steps(self, job):
        """Heartbeats go on: both nodes report later steps of their workers."""
        told = [int(node["workers"][0]["step"]) for node in job["nodes"]]
        self.wait_for_job(lambda job: all(int(node["workers"][0]["step"]) > step for node, step in zip(job["nodes"], told)),
                          "later steps of both nodes")

    def test_status_and_metrics(self):
        nodes = self.start_with_gpus()
        figures = [[(gpu["index"], gpu.get("utilization_percent"), int(gpu["memory_used_bytes"]) // MIB,
                     int(gpu["memory_total_bytes"]) // MIB) for gpu in node["gpus"]] for node in nodes]
        self.assertEqual([(0, 97, 61440, 81920), (1, 3, 920, 81920)], figures[0])
        self.assertEqual([(2, 97, 61440, 81920), (1, None, 10240, 40960)], figures[1], "as CUDA numbers them")
        text = self.status().stdout
        self.assertIn("GPU 0: 97%, 60.0/80.0 GiB; 1: 3%, 0.9/80.0 GiB\n", text)
        self.assertIn("GPU 2: 97%, 60.0/80.0 GiB; 1: -, 10.0/40.0 GiB\n", text)
        metrics = self.get("metrics")[0]
        name = nodes[0]["node_id"]
        self.assertIn(f'ddprun_gpu_utilization_ratio{{run_id="job7",node="{name}",gpu="0"}} 0.97\n', metrics)
        self.assertIn(f'ddprun_gpu_memory_used_bytes{{run_id="job7",node="{name}",gpu="0"}} {60 * 2 ** 30}\n', metrics)
        self.assertEqual(3, metrics.count("\nddprun_gpu_utilization_ratio{"))
        if PROMTOOL is not None:
            checked = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, capture_output=True, text=True, check=False)
            self.assertEqual(("", 0), (checked.stdout + checked.stderr, checked.returncode))
        self.stop()

    def start_with_lost_gpus(self):
        """Each node has lost a GPU: one node its first, before the library was asked, the other node its second, after that."""
        self.start_job(envs=(self.with_gpus("gpus0", BUSY + ";lost=handle", CALM),
                             self.with_gpus("gpus1", BUSY, CALM + ";lost=later")))
        return self.wait_for_job(lambda job: [len(node["gpus"]) for node in job["nodes"]] == [2, 2], "GPUs of both nodes")

    def test_a_lost_gpu_is_told_and_does_not_hide_the_others(self):
        job = self.start_with_lost_gpus()
        nodes = sorted(job["nodes"], key=lambda node: node["gpus"][1].get("lost", False))
        self.assertEqual([[(0, True), (1, False)], [(0, False), (1, True)]],
                         [[(gpu["index"], gpu.get("lost", False)) for gpu in node["gpus"]] for node in nodes])
        text = self.status().stdout
        self.assertIn("GPU 0: lost; 1: 3%, 0.9/80.0 GiB\n", text)
        self.assertIn("GPU 0: 97%, 60.0/80.0 GiB; 1: lost\n", text)
        self.assertIn(f'ddprun_gpu_lost{{run_id="job7",node="{nodes[0]["node_id"]}",gpu="0"}} 1\n', self.get("metrics")[0])
        self.bed.event("gpu_lost", count=2)
        told = sorted((event["node"], event["gpu"]) for event in self.bed.events.find("gpu_lost"))
        self.assertEqual(sorted((node["node_id"], str(gpu)) for gpu, node in enumerate(nodes)), told)
        self.stop()
        for gpu, agent in enumerate(self.agents):
            self.assertEqual(1, agent.text().count(f"warning: GPU {gpu} is lost to its driver"), agent.text())

    @unittest.skipIf(CHROMIUM is None, "chromium is not installed")
    def test_the_page(self):
        self.start_with_lost_gpus()
        shown = "document.body.textContent.includes('1 of 2 lost')"
        dom = self.browser().value(self.url, shown, 1000, "document.documentElement.outerHTML")
        for text in ("3 %, 0.9 of 80.0 GiB; 1 of 2 lost", "3 %, 0.9 of 80.0 GiB", "97 %, 60.0 of 80.0 GiB; 1 of 2 lost",
                     "97 %, 60.0 of 80.0 GiB"):
            self.assertIn(f">{text}</td>", dom)
        self.assertEqual(2, dom.count(">lost</td>"))
        self.stop()

    def test_top(self):
        self.start_with_gpus()
        self.wait_until_all_told()
        terminal = Terminal(self.bed, [DDPRUN, "top", "--rdzv_endpoint", f"127.0.0.1:{self.port}", "--interval", "0.2"],
                            columns=100)
        self.addCleanup(terminal.close)
        screen = terminal.wait(lambda lines: "; 4 GPUs 66%, 130.9/280.0 GiB" in lines[3], "all GPUs")
        self.assertRegex(screen[5], r"SILENT  GPU     GPU GiB *$")
        ranks = "\n".join(screen[6:10])
        self.assertEqual(2, len(re.findall(r"(?m)^ +[02] .* 97%   60\.0/80\.0", ranks)), ranks)
        self.assertEqual(1, len(re.findall(r"(?m)^ +[13] .*  3%    0\.9/80\.0", ranks)), ranks)
        self.assertEqual(1, len(re.findall(r"(?m)^ +[13] .*   -   10\.0/40\.0", ranks)), ranks)
        terminal.type(b"q")
        terminal.process.wait(20 * SLOW)
        self.stop()

    def test_twin_without_a_driver_there_is_nothing_of_gpus(self):
        self.start_job()
        self.wait_until_all_told()
        self.assertNotIn("GPU", self.status().stdout)
        self.assertNotIn("ddprun_gpu_", self.get("metrics")[0])
        self.assertEqual([[], []], [node["gpus"] for node in self.job()["nodes"]])
        self.stop()

    def test_without_a_driver_or_a_gpu_its_library_is_asked_once(self):
        envs = (self.with_gpus("gpus0", "init=9"), self.with_gpus("gpus1", BUSY, CUDA_VISIBLE_DEVICES=""))
        self.start_job("--gpu_memory_wait", 0, envs=envs)  # which asks, too
        for _ in range(3):  # heartbeats of both nodes; each would ask
            self.wait_for_later_steps(self.wait_until_all_told())
        self.assertEqual([[], []], [node["gpus"] for node in self.job()["nodes"]])
        for env in envs:
            with open(env["FAKE_NVML_GPUS"] + ".inits", encoding="utf-8") as asked:
                self.assertEqual(".", asked.read())
        self.stop()

    def test_a_driver_that_does_not_answer_holds_up_nothing(self):
        self.start_job(envs=(self.with_gpus("gpus0", BUSY), self.with_gpus("gpus1", "memory_mib=81920;utilization=hang")))
        self.wait_for_step(100)
        job = self.wait_for_job(lambda job: all(node["step_us"] > 0 for node in job["nodes"]) and
                                any(node["gpus"] for node in job["nodes"]), "steps of both nodes and the GPUs of one")
        self.assertEqual([0, 1], sorted(len(node["gpus"]) for node in job["nodes"]))
        self.wait_for_later_steps(job)
        began = time.monotonic()
        self.stop()
        self.assertLess(time.monotonic() - began, 5 * SLOW)
        self.assertEqual([], self.bed.events.find("node_lost"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
