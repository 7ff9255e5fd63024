#!/usr/bin/env python3
"""Healthy but odd programs complete with ddprun's default options, as they do with torchrun.

DDPRUN_TEST_SEED is the first program's seed. --all has 300 more, each beside torchrun.
"""

import itertools
import unittest

import crowd
from odd_programs import draw_program
from python_bed import SLOW, WHOLE, torch_is_there
from seeds import drawn_seed

SEED = drawn_seed()
COUNT, BESIDE_TORCHRUN = 12, 300
# A hang is named after 4 s here, and ended at once: as a rule that knows time alone would do it.
HASTY = ("--hang_timeout", "3")


def say(text):
    print(text, flush=True)


@unittest.skipUnless(torch_is_there(), "there is no torch")
class OddPrograms(unittest.TestCase):
    def setUp(self):
        say(f"DDPRUN_TEST_SEED={SEED}")

    def programs(self, count):
        return [draw_program(SEED + number) for number in range(count)]

    def test_each_completes(self):
        found = crowd.failures(self.programs(COUNT), say=say)
        self.assertEqual([], [str(smallest) for _, smallest in found])

    def test_twin_that_ends_what_stands_for_three_seconds(self):
        """One of ten programs, at the latest, isn't completed then."""
        outcomes = crowd.run(self.programs(10), lambda program: crowd.Job(program, HASTY), at_a_time=4)
        self.assertTrue(any(not outcome.completed() for outcome in outcomes))
        outcomes.close()

    @unittest.skipUnless(WHOLE, "scripts/test --all runs it")
    def test_none_is_slower_than_with_torchrun(self):
        jobs = itertools.product(self.programs(BESIDE_TORCHRUN), (False, True))
        took, failed = {}, []
        for outcome in crowd.run(jobs, lambda job: crowd.Job(job[0], torchrun=job[1])):
            say(f"{'torchrun' if outcome.torchrun else 'ddprun'}: {outcome}")  # what was seen, if this is cut off
            took[outcome.torchrun, outcome.program] = outcome.seconds
            if not outcome.completed():
                failed.append(f"{'torchrun' if outcome.torchrun else 'ddprun'}: {outcome}\n{outcome.text}")
        self.assertEqual([], failed)
        self.assertEqual([], [str(program) for (torchrun, program), seconds in took.items()
                              if not torchrun and seconds > took[True, program] + 10 * SLOW])


if __name__ == "__main__":
    unittest.main(verbosity=2)
