#!/usr/bin/env python3
"""A Session's loop over groups that end aborted collectives with nonsense instead of an error, as NCCL's do: those of
tests/support/fake_nccl.py. scripts/gpu_check has it over NCCL itself (tests/gpu/elastic_check.py)."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support")]

from bed import WHOLE_ONLY, main_with_torch  # noqa: E402
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


if __name__ == "__main__":
    main_with_torch()
