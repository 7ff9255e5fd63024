#!/usr/bin/env python3
"""A Session's loop over groups that end aborted collectives with nonsense instead of an error, as NCCL's do: those of
tests/support/fake_nccl.py. scripts/gpu_check has it over NCCL itself (tests/gpu/elastic_check.py)."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support")]

from bed import WHOLE_ONLY, main_with_torch  # noqa: E402
from elastic_fsdp_test import ShardsCase  # noqa: E402
from elastic_test import KillsCase  # noqa: E402


class Nccl(KillsCase):
    def digests(self, **environment):
        """What an undisturbed run ends with, and one in which ranks are lost within all-reduces."""
        digest, _ = self.undisturbed("nccl")
        agent, journal, events = self.start("nccl", env={"ELASTIC_DIES_IN": "1:1:20,2:0:15,3:2:10", **environment})
        ended = self.end(agent, journal)
        self.assertEqual(6, len(events.find("worker_started")))
        return digest, ended

    def test_nonsense_is_never_learned(self):
        self.assertEqual(*self.digests())

    def test_twin_that_does_not_ask(self):
        self.assertNotEqual(*self.digests(ELASTIC_NEVER_SETTLES="1"))

    @WHOLE_ONLY
    def test_kills_now_and_then(self):
        self.check("nccl", kills=4)

    def test_a_scaler_and_collectives_of_its_own(self):
        self.check("nccl", "scaler", "with", "gan", losses=False)


class Shards(ShardsCase):
    """Models of fully_shard(). A step has four sums, the last one just before the update."""

    def is_undisturbed(self, *forms, ends=(), dies_in="", **environment):
        """Whether a run with losses had the steps and the end of one without."""
        digests, undisturbed = self.undisturbed("nccl")
        agent, journal, events = self.start("nccl", *forms, ends=ends, env={"ELASTIC_DIES_IN": dies_in, **environment})
        ended = self.end(agent, journal)
        self.check_kept(events, len(ends) + len(dies_in.split(",")) * bool(dies_in))
        steps = self.steps_of(journal)
        return digests == ended and all({undisturbed[place][0]} == set(lines) for place, lines in steps.items())

    def test_nonsense_is_never_learned(self):
        """Ranks are lost within sums: the last one of a step, and that of the last layer. And within a forward pass, after
        which no loss is finite."""
        self.assertTrue(self.is_undisturbed("strict", dies_in="1:1:32,2:0:17", ends=[(3, 2, 26, "forward")]))

    def test_twin_that_does_not_ask(self):
        self.assertFalse(self.is_undisturbed(ends=[(1, 1, 8, "forward")], ELASTIC_NEVER_SETTLES="1"))

    @WHOLE_ONLY
    def test_passes_between_epochs_and_several_batches_a_step(self):
        digests, _ = self.undisturbed("nccl", "evaluate", "accumulate", "clip", steps=40)
        ends = [(1, 1, 21, "evaluate"), (2, 0, 30, "backward")]
        agent, journal, events = self.start("nccl", "evaluate", "accumulate", "clip", steps=40, ends=ends)
        self.assertEqual(digests, self.end(agent, journal))
        self.check_kept(events, len(ends))


if __name__ == "__main__":
    main_with_torch()
