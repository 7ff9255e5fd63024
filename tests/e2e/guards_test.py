#!/usr/bin/env python3
"""What ended workers may leave behind: GPU memory (with a driver's library of ours), processes; and what status shows."""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402

FAKE_DRIVER = os.path.join(os.path.dirname(os.path.dirname(DDPRUN)), "tests", "fake_nvml")


class GpuMemory(BedTestCase):
    """A worker is killed; the driver says for how long its memory stays taken."""

    def start(self, *options, holders="", gpus=""):
        self.holders = self.bed.write("holders", holders)
        self.bed.follower.watch(self.bed.write("holders.looks", ""))
        return self.bed.agent("agent", ["--nproc_per_node", 1, "--max_restarts", 1, *options],
                              env={"LD_LIBRARY_PATH": FAKE_DRIVER, "FAKE_NVML_HOLDERS": self.holders,
                                   "FAKE_NVML_GPUS": self.bed.write("gpus", gpus)})

    def kill_worker(self, agent, keeps_memory=True):
        worker = self.bed.workers(1, 1, alive=[agent])[0]
        if keeps_memory:
            self.bed.write("holders", f"{worker['pid']}\n1\n")
        os.kill(worker["pid"], signal.SIGKILL)
        return worker["pid"]

    def test_a_restart_waits_for_the_memory(self):
        self.check_the_wait()

    def test_a_lost_gpu_is_not_waited_for_and_the_others_are(self):
        self.check_the_wait(gpus="lost=handle\nlost=later\nname=NVIDIA L4\n")

    def check_the_wait(self, **options):
        agent = self.start("--gpu_memory_wait", 4, **options)
        self.kill_worker(agent)
        exit_ = self.bed.event("worker_exit", alive=[agent])
        # The first woke the driver, the second came when the worker was gone.
        self.bed.wait(lambda: os.path.getsize(self.holders + ".looks") >= 3, "the third look", alive=[agent])
        self.assertEqual([], self.bed.events.find("group_empty"))
        self.bed.write("holders", "1\n")
        wait = self.bed.event("gpu_memory_wait", alive=[agent])
        self.assertEqual(("", ""), (wait["holders"], wait["error"]))
        self.assertGreater(wait["waited_ms"], 0)
        self.assertLess(wait["t"] - exit_["t"], 3 * SLOW)
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)

    def test_the_wait_is_bounded(self):
        agent = self.start("--gpu_memory_wait", 0.3)
        pid = self.kill_worker(agent)
        wait = self.bed.event("gpu_memory_wait", alive=[agent])
        self.assertEqual(str(pid), wait["holders"])
        self.assertGreaterEqual(wait["waited_ms"], 300)
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.assertIn(f"still counts memory of ended workers (pid {pid})", agent.text())

    def test_twin_memory_that_is_free_costs_nothing(self):
        agent = self.start()
        self.kill_worker(agent, keeps_memory=False)
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("gpu_memory_wait"))

    def test_twin_zero_waits_for_nothing(self):
        agent = self.start("--gpu_memory_wait", 0)
        self.kill_worker(agent)
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)
        self.assertEqual([], self.bed.events.find("gpu_memory_wait"))

    def test_a_driver_that_hangs_holds_nobody_up(self):
        agent = self.start("--gpu_memory_wait", 0.3, holders="hang\n")
        self.kill_worker(agent, keeps_memory=False)
        self.assertEqual("the driver doesn't answer", self.bed.event("gpu_memory_wait", alive=[agent])["error"])
        self.bed.finish(self.bed.workers(2, 1, alive=[agent]))
        self.assert_status(0, agent)

    def test_too_long_a_wait_is_refused(self):
        agent = self.bed.agent("agent", ["--gpu_memory_wait", 5])
        self.assert_status(1, agent)
        self.assertIn("--gpu_memory_wait", agent.text())


class Status(BedTestCase):
    def status(self, *options):
        port = free_port()
        agent = self.bed.agent("agent", ["--nnodes", 1, "--nproc_per_node", 1, "--rdzv_endpoint", f"127.0.0.1:{port}",
                                         *options])
        workers = self.bed.workers(1, 1, alive=[agent])
        text = subprocess.run([DDPRUN, "status", "--rdzv_endpoint", f"127.0.0.1:{port}"], capture_output=True, text=True).stdout
        self.bed.finish(workers)
        self.assert_status(0, agent)
        return text, self.bed.event("agent_start")

    def test_status_shows_the_guards(self):
        text, start = self.status()
        self.assertIn(f"guards: {start['guards']}\n", text)
        self.assertIn("keeper, parent-death signal, isolation timeout", text)
        # One of both, never none.
        self.assertEqual("cgroup" in start["guards"], start["why_no_cgroup"] == "")

    def test_without_a_cgroup(self):
        text, start = self.status("--cgroup", "off")
        self.assertIn("guards: keeper, parent-death signal, isolation timeout\n", text)
        self.assertEqual("--cgroup off", start["why_no_cgroup"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
