#!/usr/bin/env python3
"""Workers of a Session are killed under the real launcher; the others keep process and state."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import survivors  # noqa: E402
from seeds import drawn_seed  # noqa: E402
from timeline import TimelineError  # noqa: E402

SEED = drawn_seed()
KILLS = 5
OF_COMPRESSION = ("--comm_hook", "power_sgd", "--healing", "beside")


class Survivors(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}", flush=True)

    def test_one_node(self):
        survivors.run(survivors.LiveTraining(1, 3, random.Random(SEED)), KILLS)

    def test_two_nodes_over_gloo(self):
        survivors.run(survivors.LiveTraining(2, 1, random.Random(SEED), backend="gloo"), KILLS)

    def test_two_nodes_of_two_workers(self):
        options = ("--healing", "beside")
        survivors.run(survivors.LiveTraining(2, 2, random.Random(SEED), options=options), KILLS)

    def test_who_takes_a_killed_ones_place_was_started_ahead(self):
        training = survivors.LiveTraining(2, 2, random.Random(SEED))
        survivors.run(training, KILLS)
        began, others = training.warm[:training.world], training.warm[training.world:]
        self.assertEqual([None] * training.world, began, "nobody knew yet that the program can be")
        self.assertLessEqual(KILLS, len(others))
        # A machine that has no memory or no processor left for it has a reason, and is the exception.
        cold = [line for line in training.starts if line["generation"] != "1" and line["cold"] != "0"]
        for line in cold:
            self.assertRegex(line["why_cold"], "memory|did not become a worker", line)
        self.assertEqual(others.count(False), sum(int(line["cold"]) for line in cold), cold)
        self.assertLess(others.count(False), KILLS / 2, cold)

    def test_twin_that_is_cold(self):
        training = survivors.LiveTraining(2, 2, random.Random(SEED), launch=("--warm", "off"))
        survivors.run(training, 1)
        self.assertEqual([None] * 5, training.warm)

    def test_compression_goes_on_with_a_new_worker(self):
        """A new worker compresses gradients at once: the others have trained for longer than PowerSgdOptions waits."""
        training = survivors.LiveTraining(1, 3, random.Random(SEED), options=OF_COMPRESSION)
        survivors.run(training, 2, first=1002)

    def test_shares_of_who_is_killed_come_back(self):
        for stage in ("1", "2", "3"):
            with self.subTest(stage=stage):
                options = ("--in_process_restart", "--zero_stage", stage, "--replicas", "2")
                survivors.run(survivors.LiveTraining(2, 2, random.Random(SEED), options=options), KILLS)

    def test_twin_without_copies_has_lost_them(self):
        options = ("--in_process_restart", "--zero_stage", "1", "--replicas", "0")
        with self.assertRaisesRegex(survivors.Wrong, "workers were started anew that nobody had killed"):
            survivors.run(survivors.LiveTraining(1, 3, random.Random(SEED), options=options), 1)

    def test_twin_without_the_option_starts_all_workers_anew(self):
        options = ("--no_in_process_restart",)
        with self.assertRaisesRegex(survivors.Wrong, "2 workers were started anew that nobody had killed"):
            survivors.run(survivors.LiveTraining(1, 3, random.Random(SEED), options=options), 1)

    def test_without_any_option(self):
        """The launcher has no option either: nothing restarts a job, but a worker that is killed from outside is replaced."""
        training = survivors.LiveTraining(2, 2, random.Random(SEED), restarts=None)
        survivors.run(training, KILLS)
        rules = {line["rule"] for line in training.bed.events.find("generation", generation="2")}
        self.assertEqual({"survivors"}, rules)

    def test_without_ddprun_the_option_is_named(self):
        """The option has no effect then. Negative control: without it nothing is printed."""
        for options, says in ((["--in_process_restart"], True), ([], False)):
            with tempfile.TemporaryDirectory() as folder:
                command = [survivors.PROBE, "train", os.path.join(folder, "out"), *options]
                environment = {name: value for name, value in os.environ.items() if not name.startswith("DDPRUN_")}
                result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                self.assertEqual(says, "in_process_restart has no effect: workers live on" in result.stderr, result.stderr)

    def test_twin_that_may_not_restart(self):
        training = survivors.LiveTraining(1, 3, random.Random(SEED), restarts=0)
        with self.assertRaisesRegex(TimelineError, "ended"):
            survivors.run(training, 1)

    def test_twin_of_a_crash(self):
        """A fault of the program's own ends the job, as under torchrun."""
        training = survivors.LiveTraining(1, 3, random.Random(SEED), restarts=None)
        training.signal = signal.SIGSEGV
        with self.assertRaisesRegex(TimelineError, "ended"):
            survivors.run(training, 1)


class WhatSteps(unittest.TestCase):
    """What is said of a training of two generations: pid 1 is killed in the first, 2 and 3 live, 4 is new."""

    def check(self, *steps, victims=(1,)):
        lines = [dict(zip(("pid", "generation", "step", "digest"), step), t=t) for t, step in enumerate(steps)]
        survivors.check_steps(lines, set(victims))
        for pid in victims:
            survivors.check_loss(lines, pid)

    def test_who_did_it_alone_was_killed(self):
        self.check((1, 1, 1, "a"), (2, 1, 1, "a"), (3, 1, 1, "a"), (1, 1, 2, "b"),
                   (2, 2, 2, "c"), (3, 2, 2, "c"), (4, 2, 2, "c"))

    def test_who_did_it_lives(self):
        with self.assertRaisesRegex(survivors.Wrong, "step 2 was done again, though pid 3 had done it in generation 1 and lived"):
            self.check((1, 1, 1, "a"), (2, 1, 1, "a"), (3, 1, 1, "a"), (1, 1, 2, "b"), (3, 1, 2, "b"),
                       (2, 2, 2, "b"), (4, 2, 2, "b"), (3, 2, 3, "c"))

    def test_ranks_that_differ(self):
        with self.assertRaisesRegex(survivors.Wrong, "different parameters after step 2 of generation 2"):
            self.check((1, 1, 1, "a"), (2, 1, 1, "a"), (1, 1, 2, "b"), (2, 2, 2, "c"), (4, 2, 2, "d"))

    def test_a_step_that_is_left_out(self):
        with self.assertRaisesRegex(survivors.Wrong, "nobody has done steps .2."):
            self.check((1, 1, 1, "a"), (2, 1, 1, "a"), (2, 2, 3, "c"))

    def test_who_is_behind_takes_a_step_at_each_recovery(self):
        self.check((2, 1, 1, "a"), (3, 1, 1, "a"), (3, 1, 2, "b"), (3, 2, 3, "c"), (2, 3, 4, "d"), (3, 3, 4, "d"))
        with self.assertRaisesRegex(survivors.Wrong, "pid 2 went from step 1 to 3"):
            self.check((2, 1, 1, "a"), (3, 1, 1, "a"), (3, 1, 2, "b"), (2, 1, 3, "c"), (3, 1, 3, "c"), victims=())

    def test_more_is_lost_than_one_step(self):
        with self.assertRaisesRegex(survivors.Wrong, "step 1 was done after the death of a worker that had done step 2"):
            survivors.check_loss([{"pid": 1, "generation": 1, "step": 2, "t": 0},
                                  {"pid": 2, "generation": 2, "step": 1, "t": 1}], 1)

    def test_who_is_a_step_behind_the_killed_one_while_that_dies(self):
        self.check((1, 1, 1, "a"), (1, 1, 2, "b"), (2, 1, 1, "a"), (2, 1, 2, "b"), (2, 2, 3, "c"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
