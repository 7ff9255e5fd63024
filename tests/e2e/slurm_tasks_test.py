#!/usr/bin/env python3
"""Several tasks of a Slurm step on one node, as their variables say: one launches, the others wait for its end.

Under a real Slurm: tests/slurm.
"""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import BedTestCase  # noqa: E402
from timeline import TimelineError, state_of  # noqa: E402


def holds(pid, name):
    """Whether a process has the unix socket of that name open."""
    with open("/proc/net/unix") as file:
        sockets = [f"socket:[{fields[6]}]" for fields in map(str.split, file) if fields[-1] == name]
    folder = f"/proc/{pid}/fd"
    return any(os.readlink(os.path.join(folder, fd)) in sockets for fd in os.listdir(folder))


class SlurmTasks(BedTestCase):
    def task(self, local, **variables):
        """A task of a step of two tasks on one node; the job's number is this test's process."""
        environment = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1",
                       "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
                       "SLURM_NODEID": "0", "SLURM_PROCID": str(local), "SLURM_LOCALID": str(local),
                       "SLURMD_NODENAME": "n1", "SLURM_JOB_END_TIME": "32503680000", **variables}
        return self.bed.agent(f"task{local}", [], env=environment)

    def test_the_first_launches_for_all(self):
        other = self.task(1)
        first = self.task(0)
        workers = self.bed.workers(1, 2, alive=[first, other])
        self.assertEqual([f"{os.getpid()}.0"] * 2, [line["environment"]["TORCHELASTIC_RUN_ID"] for line in workers])
        self.bed.finish(workers)
        self.assert_status(0, first)
        self.assert_status(0, other)
        self.assertEqual(1, len(self.bed.events.find("agent_start")))
        self.assertIn("Slurm: job", first.text())
        self.assertEqual("", other.text())

    def test_the_others_outlive_signals_and_not_the_first(self):
        first, other = self.task(0), self.task(1)
        workers = self.bed.workers(1, 2, alive=[first, other])
        other.signal(signal.SIGTERM)  # as Slurm sends it to all tasks
        with self.assertRaises(TimelineError):
            other.wait(0.3)
        # The keeper holds the socket until the tree is empty.
        self.assertTrue(holds(self.bed.event("agent_start")["keeper"], f"@ddprun-slurm-{os.getpid()}.0-0"))
        first.signal(signal.SIGKILL)
        self.assert_status(0, other)
        self.assertEqual([None, None], [state_of(line["pid"]) for line in workers])

    def test_without_detection_each_is_a_job(self):
        tasks = [self.task(local, PET_NO_SLURM="1") for local in (0, 1)]
        workers = self.bed.wait(lambda: self.bed.journal.find("worker")[1:] and self.bed.journal.find("worker"), "two workers")
        self.assertEqual({1}, {line["world"] for line in workers})
        self.bed.finish(workers)
        for task in tasks:
            self.assert_status(0, task)


if __name__ == "__main__":
    unittest.main(verbosity=2)
