#!/usr/bin/env python3
"""A worker of a Session fails in one of many ways, and the first cause of the job names it, not a peer that missed it."""

import concurrent.futures
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import SLOW, WHOLE, Bed  # noqa: E402
from seeds import drawn_seed  # noqa: E402

SEED = drawn_seed()
PROBE = os.environ["DDPRUN_SESSION_PROBE"]
RUNS = 200 if WHOLE else 10
# How a worker fails, and what the line of the job's end says of it.
KINDS = {
    "throw": "worker rank {rank} on \\S+ exited with code 1: DATA_LOSS: points.csv is cut short",
    "exit": "rank {rank} called exit\\(\\), with status 0, while rank \\d+ goes on",
    "break": "rank {rank} left the loop after step {step}, with status 0, while rank \\d+ goes on",
    "kill": "worker rank {rank} on \\S+ was killed by SIGKILL",
    "abort": "worker rank {rank} on \\S+ was killed by SIGABRT",
    "segv": "worker rank {rank} on \\S+ was killed by SIGSEGV",
    "hang": "worker rank {rank} on \\S+ hung: .*hasn't come to collective",
}


class Failure:
    """One way for one job to fail, drawn."""

    def __init__(self, rng):
        self.kind = rng.choice(list(KINDS))
        self.world = rng.choice((2, 4, 8))
        self.rank = rng.randrange(self.world)
        self.step = rng.randrange(12)
        self.options = ["--zero_stage", rng.choice("0123"), "--backend", rng.choice(("auto", "gloo")),
                        *rng.choice(([], ["--no_in_process_restart"]))]

    def __str__(self):
        return f"{self.kind} of rank {self.rank} of {self.world} after step {self.step}, {' '.join(self.options)}"

    def expected(self):
        return "ddprun: error: the job failed: .*" + KINDS[self.kind].format(rank=self.rank, step=self.step)


def run(failure):
    """What the job says."""
    bed = Bed()
    try:
        agent = bed.run("agent", ["--standalone", "--nproc_per_node", failure.world, "--max_restarts", 0, "--hang_timeout", 3,
                                  "--no_python", PROBE, f"{failure.kind}:{failure.rank}:{failure.step}", bed.path("out"),
                                  "--epochs", 1000, "--batch_size", 1, *failure.options])
        status = agent.wait(60 * SLOW)
        return status, agent.text(), bed.stop()
    finally:
        bed.close()


class FirstCause(unittest.TestCase):
    def test_who_failed_is_named(self):
        rng = random.Random(SEED)
        failures = [Failure(rng) for _ in range(RUNS)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for failure, (status, text, left) in zip(failures, pool.map(run, failures), strict=True):
                with self.subTest(str(failure), seed=SEED):
                    self.assertEqual((1, {}), (status, left), text)
                    self.assertRegex(text, failure.expected())


if __name__ == "__main__":
    unittest.main(verbosity=2)
