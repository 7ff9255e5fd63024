#!/usr/bin/env python3
"""A worker hangs on one node: the others stall with it, and the right one is named over all nodes (R13)."""

import os
import signal

import job
from bed import ROOT, SLOW

WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")
MEETING = 29600


class Hangs(job.ClusterTestCase):
    def start_marking(self, hosts, *plans, steps=4000, options=()):
        agents = []
        for i in range(1, hosts + 1):
            arguments = ["--nnodes", hosts, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n1:{job.PORT}", "--rdzv_id",
                         "job", "--max_restarts", 1, *options, "--event_log", self.bed.events.path, WORKER,
                         self.bed.journal.path, MEETING, 4, steps, *plans]
            agents.append(self.bed.run(f"agent{i}", arguments, host=i))
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=400, attempt=0)) == hosts, "400 steps", alive=agents)
        return agents, self.bed.workers(1, hosts)

    def test_a_stopped_worker_of_another_node_is_named(self):
        agents, workers = self.start_marking(3, options=("--hang_timeout", 2))
        self.bed.signal_workers(workers[2:], signal.SIGSTOP)
        hang = self.bed.event("hang", who="service", alive=agents)
        self.assertEqual("2", hang["ranks"])
        self.assertIn("stopped by a signal", hang["evidence"])
        suspended = self.bed.event("worker_suspended")
        for agent in agents:
            spawned = self.bed.event("spawn", pid=agent.pid, generation=2, alive=agents)
            self.assertLess(spawned["t"] - suspended["t"], 6 * SLOW)
            self.assertIn(f"worker rank 2 on {workers[2]['host']} hung", agent.text())
        self.bed.signal_workers(self.bed.workers(2, 3, alive=agents), signal.SIGKILL)

    def test_who_waits_elsewhere_is_named(self):
        """Two ranks wait for the third in a read of a socket; that one in a read of a pipe."""
        agents, _ = self.start_marking(3, "1@500=read", steps=600, options=("--hang_timeout", 2))
        hang = self.bed.event("hang", who="service", alive=agents)
        self.assertEqual("1", hang["ranks"])
        for agent in agents:
            self.assert_status(0, agent)

    def test_twin_with_detection_off_all_stand_still(self):
        agents, workers = self.start_marking(2, options=("--hang_detection", "off"))
        self.bed.signal_workers(workers[1:], signal.SIGSTOP)
        self.bed.event("worker_suspended", alive=agents)
        self.assert_quiet(lambda: self.bed.events.find("hang_named"), 3)


if __name__ == "__main__":
    job.main()
