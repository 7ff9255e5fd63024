#!/usr/bin/env python3
"""However a job ends, no process of it and none of its memory on the GPU is left a few seconds later.

A twin asks programs/nvidia_smi.py what the GPU's memory is.
"""

import os
import signal
import time
import unittest
import uuid

from gpu_bed import ON_GPU, PATIENCE, SLOW, GpuCase, figure, memory_used_mib, nvidia_smi, within
from side_by_side import Job
from timeline import TAG_VARIABLE, kill_tagged, leftovers

WORLD = 2
WAIT = 25 if ON_GPU else PATIENCE  # seconds; what would fail later there fails at the check's limit, without a word
MARGIN_MIB = 64  # what a driver may keep, or other processes take
CLEAN = 5 * SLOW  # seconds
WARM = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch.distributed,torch.nn.parallel,torch._dynamo")
TRAINED = 5  # steps, after which a worker takes no more memory


class Clean(GpuCase):
    def setUp(self):
        super().setUp()
        self.workers = self.bed.write("pids", "")
        if not ON_GPU:
            self.use_fake_smi(FAKE_SMI_PIDS=self.workers)
        self.before = memory_used_mib()

    def start(self, name, steps, options=()):
        """A job whose processes have a tag of their own."""
        tag = uuid.uuid4().hex
        job = Job(self, name, lambda: self.train(WORLD, (*WARM, *options), ("--steps", steps, "--pause", 0.05), name=name,
                                                 env={TAG_VARIABLE: tag}))
        job.tag = tag
        self.addCleanup(kill_tagged, tag)  # the bed looks for its own
        return job

    def pids_of(self, job):
        """The pids of the job's workers, once they train."""
        job.said("step", WORLD, WAIT, step=TRAINED)
        pids = {line["pid"] for line in job.journal.find("begun")}
        with open(self.workers, "a", encoding="ascii") as file:
            file.writelines(f"{pid}\n" for pid in pids)
        return pids

    def assert_clean(self, job, pids, most_mib, seconds=CLEAN):
        """No process has its tag, none of its pids has memory of the GPU, and of that no more than so much is used. Returns how
        long that took: until the processes were gone, and until the memory was."""
        began = time.monotonic()
        self.assertEqual({}, leftovers(job.tag, seconds))
        gone = time.monotonic() - began
        self.assertTrue(within(seconds, lambda: not self.holders() & pids), f"{self.holders() & pids} hold memory")
        self.assertTrue(within(seconds, lambda: memory_used_mib() <= most_mib),
                        f"{memory_used_mib()} MiB are used, not {most_mib}; {self.before} were before")
        return gone, time.monotonic() - began

    def assert_ends_clean(self, job, pids, most_mib):
        gone, free = self.assert_clean(job, pids, most_mib)
        figure(f"{job.name}_no_process", gone, "s")
        figure(f"{job.name}_no_memory", free, "s")

    def assert_left_is_seen(self, job, pids, full):
        """Negative control, with a job that still runs: seen are its processes, their memory as far as the driver names them, and
        all memory."""
        with self.assertRaises(AssertionError):
            self.assert_clean(job, pids, full, 0.1)
        tag, job.tag = job.tag, "nobody's"
        if self.holders() & pids:
            with self.assertRaisesRegex(AssertionError, "hold memory"):
                self.assert_clean(job, pids, full, 0.1)
        with self.assertRaisesRegex(AssertionError, "MiB are used"):
            self.assert_clean(job, set(), self.before + MARGIN_MIB, 0.1)
        job.tag = tag

    @staticmethod
    def holders():
        return {int(pid) for pid, in nvidia_smi("pid", of="compute-apps") if pid.isdigit()}

    def keeper(self, job):
        return job.events.find("agent_start")[0]["keeper"]

    def test_ends_of_one_of_several(self):
        """The jobs end one after the other, and each one's share of the memory must be free before the next one ends. Fails if a
        worker outlives its job, as the first look sees, at a job that still runs."""
        jobs = {name: self.start(name, 1000000, ("--max_restarts", 0)) for name in ("agent", "worker", "keeper", "sigterm")}
        pids = {name: self.pids_of(job) for name, job in jobs.items()}
        full = memory_used_mib()
        share = (full - self.before) / len(jobs)
        figure("memory_of_a_worker", share / WORLD, "MiB")
        self.assertGreater(share, 2 * MARGIN_MIB)
        known = self.holders() & set.union(*pids.values())
        # In a container the driver may know them by other numbers, or not show them.
        figure("workers_known_to_the_driver", len(known), "")
        self.assert_left_is_seen(jobs["agent"], pids["agent"], full)
        acts = {"agent": lambda job: job.agent.signal(signal.SIGKILL),
                "worker": lambda job: os.kill(max(pids["worker"]), signal.SIGKILL),
                "keeper": lambda job: os.kill(int(self.keeper(job)), signal.SIGKILL),
                "sigterm": lambda job: job.agent.signal(signal.SIGTERM)}
        for count, (name, job) in enumerate(jobs.items(), start=1):
            with self.subTest(end=name):
                acts[name](job)
                status = job.agent.wait(WAIT)
                print(f"{name}: status {status}", flush=True)
                self.assertNotEqual(0, status)
                self.assert_ends_clean(job, pids[name], full - count * share + MARGIN_MIB)

    def test_a_normal_end(self):
        job = self.start("normal", 3 * TRAINED)
        pids = self.pids_of(job)
        self.finish_job(job.agent)
        self.assert_ends_clean(job, pids, self.before + MARGIN_MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
