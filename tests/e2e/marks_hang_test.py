#!/usr/bin/env python3
"""Hangs of scripts that mark nothing (docs/PROGRESS.md): noticed without any option, and the rank is named that is waited for;
what provably can't go on is ended, all else after --hang_timeout."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bed import ROOT, SLOW, SLOWNESS, TORCH_PYTHON, WHOLE, BedTestCase, torch_ahead, torch_is_there  # noqa: E402
from timeline import TimelineError  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "unmodified_worker.py")
STEP = 0.05  # seconds
STEPS = 30
ENDED = ("--hang_timeout", "20")


class MarksHangTestCase(BedTestCase):
    def setUp(self):
        super().setUp()
        if not torch_is_there():
            self.skipTest("there is no torch")
        self.bed.environment["PYTHON_EXEC"] = TORCH_PYTHON

    def start(self, *plans, kind="plain", options=(), steps=STEPS, nproc=2, ahead=True, restarts=1):
        warm = torch_ahead("torch.nn.parallel", "torch.utils.data", "torch._dynamo") if ahead else ()
        return self.bed.run("agent", ["--standalone", "--nproc_per_node", nproc, "--max_restarts", restarts, *options, *warm,
                                      "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, kind, steps,
                                      STEP * 1000, *plans])

    def named(self, agent, rank, bound=10 * STEP + 5):
        """Until that rank alone is named; the agent's own record of it. The bound is that of the docs, without other load."""
        plan = self.bed.wait(lambda: self.bed.journal.find("plan"), "the plan", timeout=60 * SLOW, alive=[agent])[0]
        hang = self.bed.event("hang_named", who="service", timeout=4 * bound * SLOW, alive=[agent])
        self.assertEqual(str(rank), hang["ranks"])
        self.assertLess(hang["t"] - plan["t"], bound * SLOW)
        print(f"{plan['plan']}: named after {hang['t'] - plan['t']:.1f} s", flush=True)
        return self.bed.event("hang_named", rank=str(rank), alive=[agent])

    def assert_goes_on(self, agent):
        """The rank is ended when its time is over, and the job goes on."""
        self.bed.event("generation", generation="2", timeout=60 * SLOW, alive=[agent])
        self.assert_status(0, agent, timeout=60 * SLOW)


class Hangs(MarksHangTestCase):
    def test_one_that_sleeps(self):
        agent = self.start("1@20=sleep", ahead=False, restarts=0, options=ENDED)  # as most people start theirs
        told = self.named(agent, 1)
        self.assertIn("no progress in train, step 19, for ", told["why"])
        self.assertRegex(told["why"], r"hasn't come to collective \d+, for which rank 0 has waited [\d.]+s")
        self.assertTrue(told["python"].startswith("unmodified_worker.py:"), told["python"])
        self.assertEqual("waits in select, with a time limit", told["waits"])
        hang = self.bed.event("hang", rank="1", timeout=60 * SLOW, alive=[agent])
        self.assertIn("hasn't come to collective", hang["why"])
        self.assert_status(1, agent, timeout=60 * SLOW)

    def test_twin_by_default_it_is_left_alone(self):
        agent = self.start("1@20=sleep")
        told = self.named(agent, 1)
        self.assertEqual("30m", told["limit"])  # Gloo's own time-out
        with self.assertRaises(TimelineError):
            self.bed.event("hang", timeout=10)

    def test_twin_with_mark_off_it_stands_for_ever(self):
        agent = self.start("1@20=sleep", options=("--mark", "off"))
        self.bed.wait(lambda: self.bed.journal.find("plan"), "the plan", timeout=60 * SLOW, alive=[agent])
        with self.assertRaises(TimelineError):
            self.bed.event("hang_named", timeout=(10 * STEP + 6) * SLOWNESS)

    def test_one_in_a_system_call_with_gradients_accumulated(self):
        agent = self.start("1@20=native", kind="accumulate", options=ENDED)
        self.named(agent, 1)
        self.assert_goes_on(agent)

    def test_one_that_spins_with_two_optimizers_and_three_ranks(self):
        agent = self.start("1@20=spin", kind="two", nproc=3, options=ENDED)
        self.named(agent, 1)
        self.assert_goes_on(agent)

    def test_what_is_no_hang_ends_no_job(self):
        """A rank that waits for something outside of the job is named, goes on, and the job is none the worse."""
        agent = self.start(f"0@20=pause:{10 * STEP + 15}", restarts=0)
        self.named(agent, 0)
        over = self.bed.event("hang_over", rank="0", timeout=60 * SLOW, alive=[agent])
        self.assertIn(f"worker rank 0 goes on after {over['after']}", agent.text())
        self.assert_status(0, agent, timeout=60 * SLOW)
        self.assertEqual([], self.bed.events.find("hang"))


class Proofs(MarksHangTestCase):
    """A job that can never go on is ended without any option. Negative controls: the healthy waits of
        tests/python/odd_programs_test.py."""

    def proven(self, agent, evidence):
        hang = self.bed.event("hang", who="service", timeout=60 * SLOW, alive=[agent])
        self.assertIn(evidence, hang["evidence"])
        self.assert_status(1, agent, timeout=60 * SLOW)
        self.assertIn(evidence, " ".join(agent.text().split()))
        return hang["ranks"]

    def test_locks_that_nobody_else_can_release(self):
        agent = self.start("1@20=deadlock", restarts=0)
        self.assertEqual("1", self.proven(agent, "deadlock: each of its threads waits for a lock"))

    def test_collectives_of_two_kinds(self):
        agent = self.start("0@20=all_reduce", "1@20=broadcast", "2@20=all_reduce", nproc=3, restarts=0)
        self.assertEqual("1", self.proven(agent, "ranks 0, 2 wait in all_reduce, rank 1 waits in broadcast"))

    def test_two_groups_in_two_orders(self):
        agent = self.start("0@20=groups:01", "1@20=groups:10", restarts=0)
        self.assertEqual("0,1", self.proven(agent, "crossed collectives, each waits for another: rank 0 waits in all_reduce"))


@unittest.skipUnless(WHOLE, "scripts/test --all runs it; e2e_hang has such hangs of scripts with marks")
class FurtherHangs(MarksHangTestCase):
    def test_one_that_is_stopped(self):
        agent = self.start("1@20=stop", options=ENDED)
        self.assertIn("stopped", self.named(agent, 1)["waits"])
        self.assert_goes_on(agent)

    def test_one_whose_loader_is_stuck(self):
        agent = self.start("0@20=loader", options=ENDED)
        self.named(agent, 0)
        self.assert_goes_on(agent)


class NoHangs(MarksHangTestCase):
    def test_long_evaluations_and_saves(self):
        """Each lasts longer than a hang takes to be named. An attempt knows nothing of how long those before it took."""
        long = 10 * STEP + 7
        attempts = {"all evaluate": [f"*@20=evaluate:{long}"],
                    "one evaluates and the other waits": [f"0@20=evaluate:{long}"],
                    "one saves and the other waits": [f"0@20=save:{long}"],
                    # The agent sees that the others wait for the worker; an evaluation that took as long before excuses it.
                    "what took long once may again": ["*@12=evaluate:4", f"0@20=evaluate:{long}"]}
        last = len(attempts) - 1
        plans = [f"{plan}#{attempt}" for attempt, its in enumerate(attempts.values()) for plan in its]
        agent = self.start(*plans, *(f"0@{STEPS}=kill#{attempt}" for attempt in range(last)), restarts=last)
        self.assert_status(0, agent, timeout=(60 + last * 30) * SLOW)
        self.bed.follower.refresh()
        self.assertEqual([], self.bed.events.find("hang_named"))
        self.assertEqual(2, len(self.bed.journal.find("trained", attempt=last)))
        done = [line["plan"] for line in self.bed.journal.find("plan", rank=0)]
        self.assertEqual(["evaluate", "kill", "evaluate", "kill", "save", "kill", "evaluate", "evaluate"], done)


if __name__ == "__main__":
    unittest.main(verbosity=2)
