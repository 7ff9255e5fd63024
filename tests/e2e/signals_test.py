#!/usr/bin/env python3
"""Ctrl-C and SIGTERM in every state of a job: which processes end, how fast, with which status."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import DDPRUN, SLOW, BedTestCase, free_port  # noqa: E402
from timeline import leftovers  # noqa: E402

BOUND = 1 * SLOW


class Signals(BedTestCase):
    def ends(self, agent, number, status, within=BOUND):
        started = time.monotonic()
        agent.signal(number)
        self.assert_status(status, agent, within)
        return time.monotonic() - started

    def elastic(self, *options, nnodes="2", port=None):
        return ["--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port or free_port()}",
                *options]

    def test_while_waiting_for_nodes(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            agent = self.bed.agent("c10d", self.elastic())
            self.bed.event("node_joined", after=agent.started, alive=[agent])
            self.ends(agent, number, status)
            agent = self.bed.agent("static", ["--nnodes", 2, "--node_rank", 0, "--master_addr", "127.0.0.1",
                                              "--master_port", free_port()])
            self.bed.event("node_joined", after=agent.started, alive=[agent])
            self.ends(agent, number, status)

    def test_a_signal_that_is_ignored_from_the_start(self):
        """As in a batch script that gets SIGUSR1 before its limit: neither the agent nor the worker sees it."""
        script = self.bed.write("trap.sh", f"#!/bin/sh\ntrap '' USR1\nexec {DDPRUN} \"$@\"\n", mode=0o755)
        gate = self.bed.path("gate")
        os.mkfifo(gate)
        words = [script, "--standalone", "--no_python", "sh", "-c", f"echo begun; kill -USR1 $$; read line < {gate}; echo done"]
        agent = self.bed.start_process("trapped", words, output=self.bed.path("trapped.out"), env=self.bed.environment)
        with open(gate, "w", encoding="ascii") as opened:  # when the worker reads
            agent.signal(signal.SIGUSR1)
            opened.write("go on\n")
        self.assert_status(0, agent)
        self.assertIn("done\n", agent.text())

    def test_while_the_service_does_not_answer(self):
        agent = self.bed.agent("client", self.elastic("--rdzv_conf", "is_host=0"))
        self.bed.event("agent_start", alive=[agent])
        self.ends(agent, signal.SIGINT, 130)

    def test_while_training(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            agent = self.bed.agent(f"ddprun{number}", ["--nproc_per_node", 2])
            self.bed.next_workers(0, 2, 2, alive=[agent])
            self.bed.journal.lines.clear()
            self.ends(agent, number, 1)
            self.assertEqual({}, leftovers(self.bed.tag, 0))

    def test_ends_the_job_on_all_nodes(self):
        port = free_port()
        first = self.bed.agent("first", self.elastic("--rdzv_conf", "is_host=1", port=port))
        second = self.bed.agent("second", self.elastic("--rdzv_conf", "is_host=0", port=port))
        self.bed.workers(1, 2, alive=[first, second])
        first.signal(signal.SIGINT)
        self.assert_status(1, first, 2 * BOUND)
        self.assert_status(1, second, 2 * BOUND)

    def test_second_signal_does_not_wait_for_the_grace(self):
        agent = self.bed.agent("ddprun", [], worker=("ignore-term", "wait"))
        workers = self.bed.workers(1, 1, alive=[agent])
        agent.signal(signal.SIGTERM)
        self.bed.event("stop_begin", generation=1, alive=[agent])
        # Negative control: the worker ignores the first, so without a second one the agent waits.
        os.kill(workers[0]["pid"], 0)
        self.assertFalse(agent.ended())
        self.ends(agent, signal.SIGINT, 1)  # the same one counts only after a quarter of a second

    def test_agent_killed_leaves_nothing(self):
        agent = self.bed.agent("ddprun", ["--nproc_per_node", 2], worker=("ignore-term", "wait"))
        self.bed.workers(1, 2, alive=[agent])
        agent.signal(signal.SIGKILL)
        agent.wait(BOUND)
        self.assertEqual({}, leftovers(self.bed.tag, BOUND))

    def test_children_of_a_worker_go_with_it(self):
        script = self.bed.write("s.sh", "#!/bin/sh\nsetsid tail -f /dev/null &\ntail -f /dev/null &\nexit 0\n", 0o755)
        agent = self.bed.run("ddprun", ["--leftovers", "kill", "--no_python", script])
        self.assert_status(0, agent)
        self.assertEqual({}, leftovers(self.bed.tag, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
