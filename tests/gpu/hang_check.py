#!/usr/bin/env python3
"""Hangs beside a GPU: the rank that holds up the others is named within seconds, and nothing is ended that can go on."""

import signal
import time
import unittest

from gpu_bed import BACKEND, DEVICE, ON_GPU, PATIENCE, SLOW, GpuCase, bed, figure
from side_by_side import Job

WORLD = 2
WAIT = 30 if ON_GPU else PATIENCE  # seconds; what would fail later there fails at the check's limit, without a word
STEP = 0.02  # seconds (programs/hang.py)
# docs/PROGRESS.md: suspect after ten steps and 2.5 s, and two looks.
NAMED = 10 * STEP + 5
# One that uses the processor, as a host does that waits for a GPU, may be at work: it is named after --first_step_timeout (10
# minutes without that option), or twice the limit of others if that is longer.
BUSY = ("--first_step_timeout", 4)
BUSY_NAMED = 2 * NAMED
BLOCKED = 10 if ON_GPU else 7  # seconds, longer than it takes to be named


WARM = ("--warm", "on", "--warm_memory", "50%", "--preload", "torch,torch._dynamo,torch.distributed,torch.nn.parallel")


class Hang(GpuCase):
    def start(self, name, how, options=()):
        return Job(self, name, lambda: self.launch(
            WORLD, (*WARM, *options), "hang.py", "--device", DEVICE, "--backend", BACKEND, "--journal", self.bed.journal.path,
            "--how", how, "--seconds", BLOCKED, name=name))

    def named(self, job, bound):
        """The line of rank 1's agent that names it, and nobody else, in that time."""
        begun = job.said("holds_up", 1, WAIT)[0]["t"]
        named = job.event("hang_named", WAIT, who="service")
        figure(f"{job.name}_named", named["t"] - begun, "s")
        self.assertEqual("1", named["ranks"])
        self.assertLess(named["t"] - begun, bound * SLOW)
        told = job.event("hang_named", WAIT, rank="1")
        self.assertIn("hasn't come to collective", told["why"])
        return told

    def assert_goes_on(self, job):
        """The job was never ended, and ends well by itself."""
        self.finish_job(job.agent)
        self.bed.follower.refresh()
        self.assertEqual([], job.events.find("hang"))
        self.assertEqual(1, len(job.journal.find("goes_on")))

    def test_all(self):
        """Fails where nobody is named (as with --mark off), another rank is, or one is ended that could have gone on. That an end
        would be seen, the one with --hang_timeout shows."""
        missing = self.start("missing", "sleep")
        kernel = self.start("kernel", "kernel", BUSY)
        blocking = self.start("blocking", "blocking")
        ended = self.start("ended", "sleep", ("--hang_timeout", 3)) if ON_GPU or bed.WHOLE else None
        self.named(missing, NAMED)
        self.bed.signal_workers(missing.journal.find("holds_up"), signal.SIGUSR1)
        self.assert_goes_on(missing)
        self.assertEqual(1, len(missing.events.find("hang_over", rank="1")))
        if ended is not None:
            hang = ended.event("hang", WAIT, rank="1")
            figure("ended_after", hang["t"] - ended.journal.find("holds_up")[0]["t"], "s")
            self.finish_job(ended.agent, 1)
        self.assert_goes_on(blocking)
        lasted = blocking.journal.find("goes_on")[0]["t"] - blocking.journal.find("holds_up")[0]["t"]
        figure("blocking_lasted", lasted, "s")
        self.assertGreater(lasted, BLOCKED / 2)
        # The rank holds up the others, so it may be named, as long as it isn't ended.
        named = blocking.events.find("hang_named", rank="1")
        figure("blocking_is_named", len(named), "")
        print("\n".join(f"{line['why']}; {line['waits']}" for line in named), flush=True)
        self.named(kernel, BUSY_NAMED)
        self.assertEqual([], kernel.events.find("hang"))
        self.assertFalse(kernel.agent.ended())
        told = time.monotonic()
        kernel.agent.signal(signal.SIGTERM)
        kernel.agent.wait(WAIT)
        figure("kernel_ended_in", time.monotonic() - told, "s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
