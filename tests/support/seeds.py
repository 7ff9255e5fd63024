"""The seed of what a test draws at random."""

import os
import random


def drawn_seed():
    """DDPRUN_TEST_SEED, to repeat a run; in an ordinary run of scripts/test the commit's, so that all runs of one commit draw the
    same, and each commit draws something else; otherwise any seed."""
    given = os.environ.get("DDPRUN_TEST_SEED") or os.environ.get("DDPRUN_TEST_COMMIT_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)
