#!/usr/bin/env python3
"""Drawn launches beside torchrun: what it completes, ddprun completes in the same way (docs/TESTING.md).

An ordinary run has the comparison's own tests; DDPRUN_CONTRACT=whole compares DDPRUN_LAUNCHES_BESIDE launches (60), each of
which costs torchrun some seconds of a processor. DDPRUN_LAUNCHES_PEER is another torchrun.
"""

import concurrent.futures
import copy
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

import lane  # noqa: E402
import play  # noqa: E402
from beside import Beside, completed  # noqa: E402
from draw import draw  # noqa: E402
from launch import Launch  # noqa: E402
from seeds import drawn_seed  # noqa: E402

WHOLE = os.environ.get("DDPRUN_CONTRACT") == "whole"
SEED = drawn_seed()
COUNT = int(os.environ.get("DDPRUN_LAUNCHES_BESIDE", "60"))
# torchrun imports torch, beside others that do.
PATIENCE = 30 * play.SLOW


class BesideCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        reason = lane.why_not(play.DDPRUN)
        if reason:
            raise unittest.SkipTest(reason)
        cls.players = play.Players((os.cpu_count() or 1) + 1)
        cls.addClassCleanup(cls.players.close)


class Compared(BesideCase):
    """A difference is noticed, and called by its name: ddprun beside itself, with something changed."""

    def test_differences(self):
        launch = Launch(nproc=2, options=[["tee", "1"], ["log_dir", "logs"]], rendezvous="static", address="127.0.0.1")
        played = self.players.judged(launch)
        self.assertEqual([], played.complaints, played.story())
        seen = played.seen
        self.assertEqual([], Beside(launch, seen, seen).compare())

        def complaints(change):
            other = copy.deepcopy(seen)
            change(other, next(note for note in other["notes"][0] if note["note"] == "began" and note["rank"] == 1))
            return {complaint.kind for complaint in Beside(launch, other, seen).compare()}

        self.assertEqual({"beside: status"}, complaints(lambda other, _: other.update(statuses=[1])))
        self.assertEqual({"beside: workers"}, complaints(lambda _, worker: worker.update(rank=2)))
        self.assertEqual({"beside: arguments"}, complaints(lambda _, worker: worker.update(arguments=["x"])))
        self.assertEqual({"beside: session"}, complaints(lambda _, worker: worker.update(leads=False)))
        self.assertEqual({"beside: descriptors"}, complaints(lambda _, worker: worker.update(open=[0, 1, 2, 9])))
        self.assertEqual({"beside: environment"}, complaints(lambda _, worker: worker["environment"].update(ROLE_RANK="7")))
        self.assertEqual({"beside: environment"}, complaints(lambda _, worker: worker["environment"].pop("MASTER_ADDR")))
        self.assertEqual({"beside: limits"}, complaints(lambda _, worker: worker.update(inherited="Umask:\t0077")))
        self.assertEqual({"beside: files"}, complaints(lambda other, _: other["logs"][0].popitem()))
        empty = dict.fromkeys(seen["logs"][0], "")
        self.assertEqual({"beside: files"}, complaints(lambda other, _: other.update(logs=[empty])))


class BesideTorchrun(BesideCase):
    """Only in a whole run: load_tests() leaves it out otherwise."""

    def compared(self, seed):
        """(the launch, what is wrong with ddprun's; None where torchrun doesn't complete it)."""
        launch = draw(seed, beside=True)
        theirs = self.players.judged(launch, [play.PEER], PATIENCE).seen
        if not completed(launch, theirs, PATIENCE):
            return play.Played(launch, theirs, None)
        ours = self.players.judged(launch)
        return play.Played(launch, ours.seen, ours.complaints + Beside(launch, ours.seen, theirs).compare())

    def test_drawn_launches(self):
        self.assertTrue(os.access(play.PEER, os.X_OK), f"{play.PEER} is not installed (scripts/setup installs it)")
        print(f"seed {SEED}, {COUNT} launches beside {play.PEER}", flush=True)
        with concurrent.futures.ThreadPoolExecutor(self.players.count) as pool:
            played = list(pool.map(self.compared, range(SEED, SEED + COUNT)))
        without = [each for each in played if each.complaints is None]
        print(f"summary: {COUNT - len(without)} of {COUNT} drawn launches compared; torchrun fails the others", flush=True)
        failed = [each for each in played if each.complaints]
        self.assertEqual([], failed, f"seed {SEED}:\n" + "\n".join(each.story() for each in failed[:10]))
        self.assertLess(len(without), COUNT / 2, "torchrun completes too few of them: " + "\n".join(
            each.launch.text() for each in without[:10]))


def load_tests(loader, _, __):
    cases = [Compared, *([BesideTorchrun] if WHOLE else [])]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    unittest.main(verbosity=2)
