#!/usr/bin/env python3
"""What ended workers may leave behind: GPU memory (with a driver's library of ours), processes; and what status shows."""

import glob
import os
import select
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, PATIENCE, SLOW, WORKER, BedTestCase, free_port  # noqa: E402

from timeline import state_of  # noqa: E402

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


class StoodStill(BedTestCase):
    """A process that is stopped for a while does no harm, neither while it is stopped nor when it goes on."""

    def test_an_agent_reads_what_came_before_it_judges(self):
        """The agent is stopped while its workers end, for longer than R3's 5 s; its keeper has done all by then."""
        # The node counts as lost after the lease, which ends its stop.
        options = ["--nnodes", 2, "--nproc_per_node", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                   "--lease", 7, "--max_restarts", 3]
        first = self.bed.agent("first", [*options, "--rdzv_conf", "is_host=1"])
        second = self.bed.agent("second", [*options, "--rdzv_conf", "is_host=0"])
        workers = self.bed.workers(1, 2, alive=[first, second])
        of_first = self.bed.event("worker_started", who=f"agent:{os.uname().nodename}#{first.pid}")["worker_pid"]
        of_second, = ({line["pid"] for line in workers} - {of_first})
        worker = os.pidfd_open(of_second)
        self.addCleanup(os.close, worker)
        os.kill(of_first, signal.SIGKILL)
        # The other's worker has got its TERM, and its agent hears nothing more.
        poll = select.poll()
        poll.register(worker)
        self.assertTrue(poll.poll(PATIENCE * 1000))
        second.signal(signal.SIGSTOP)
        self.bed.event("node_lost", alive=[first])
        second.signal(signal.SIGCONT)
        # An agent that reported the end before it was stopped still starts a worker of generation 2, which is over by then.
        # The service may write the node's return and the generation that follows from it at one moment.
        joined = self.bed.event("node_joined", count=3, alive=[first, second])
        generation = self.bed.event("generation", after=joined["t"] - 0.001, alive=[first, second])["generation"]
        self.bed.finish(self.bed.workers(int(generation), 2, alive=[first, second]))
        for agent in (first, second):
            self.assert_status(0, agent)
        self.assertNotIn("uninterruptible", second.text())
        self.assertTrue(self.bed.events.find("held_up"))

    def test_a_stopped_keeper_goes_on_when_its_agent_is_killed(self):
        agent = self.bed.agent("agent", ["--cgroup", "off"])
        worker, = self.bed.workers(1, 1, alive=[agent])
        end = os.pidfd_open(worker["pid"])
        self.addCleanup(os.close, end)
        os.kill(self.bed.event("agent_start")["keeper"], signal.SIGSTOP)
        agent.signal(signal.SIGKILL)
        poll = select.poll()
        poll.register(end)
        self.assertTrue(poll.poll(PATIENCE * 1000), "the worker outlives its agent")

    def test_a_stopped_keeper_goes_on_when_its_agent_ends(self):
        """Two signals: the second is KILL, which only the keeper can carry out."""
        agent = self.bed.agent("agent", ["--cgroup", "off", "--grace", "1"], worker=("ignore-term", "wait"))
        worker, = self.bed.workers(1, 1, alive=[agent])
        os.kill(self.bed.event("agent_start")["keeper"], signal.SIGSTOP)
        agent.signal(signal.SIGTERM)
        self.assert_status(1, agent, 20 * SLOW)
        self.assertIsNone(state_of(worker["pid"]))


class Nested(BedTestCase):
    """A worker that runs a ddprun of its own: nothing of either's cgroups stays."""

    SCRIPT = """import os, signal, subprocess, sys
own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "DDPRUN_W", "MASTER_"))}
subprocess.Popen(sys.argv[1:], env=own)
signal.pause()
"""

    def cgroups(self):
        """The folders of cgroups below the one that this process is in."""
        with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            places = [line.split()[4] for line in mounts if " - cgroup2 " in line]
        with open("/proc/self/cgroup", encoding="utf-8") as groups:
            own = [line.strip().partition("0::")[2] for line in groups if line.startswith("0::")]
        self.assertTrue(places and own, "where the cgroup was made")
        return glob.glob(f"{places[0]}{own[0].rstrip('/')}/**/ddprun-*", recursive=True)

    def test_a_killed_worker_leaves_no_cgroup_of_its_own_ddprun(self):
        script = self.bed.write("script.py", self.SCRIPT)
        inner = [DDPRUN, WORKER, self.bed.journal.path, "wait"]
        agent = self.bed.run("agent", ["--event_log", self.bed.events.path, script, *inner])
        start = self.bed.event("agent_start", alive=[agent])
        self.bed.wait(lambda: self.bed.journal.find("worker"), "the inner worker", alive=[agent])
        if start["why_no_cgroup"] != "":
            os.kill(self.bed.event("worker_started")["worker_pid"], signal.SIGKILL)
            self.assert_status(1, agent)
            self.skipTest(f"no cgroup here: {start['why_no_cgroup']}")
        made = [path for path in self.cgroups() if path.endswith(f"-{agent.pid}") or f"-{agent.pid}/" in path]
        self.assertEqual(2, len(made), "the inner one is in the outer one")
        keeper = os.pidfd_open(start["keeper"])
        self.addCleanup(os.close, keeper)
        os.kill(self.bed.event("worker_started")["worker_pid"], signal.SIGKILL)
        self.assert_status(1, agent)
        poll = select.poll()
        poll.register(keeper)
        self.assertTrue(poll.poll(PATIENCE * 1000), "the keeper is still there")
        self.assertEqual([], [path for path in made if os.path.exists(path)])


class Status(BedTestCase):
    def status(self, *options):
        port = free_port()
        agent = self.bed.agent("agent", ["--nnodes", 1, "--nproc_per_node", 1, "--rdzv_endpoint", f"127.0.0.1:{port}",
                                         *options])
        workers = self.bed.workers(1, 1, alive=[agent])
        text = subprocess.run([DDPRUN, "status", "-o", "wide", "--rdzv_endpoint", f"127.0.0.1:{port}"],
                              capture_output=True, text=True).stdout
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
