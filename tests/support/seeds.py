"""The seed of what a test draws at random."""

import os
import random


def drawn_seed():
    """DDPRUN_TEST_SEED, to repeat a run; the commit's in an ordinary run of scripts/test, so that what passed once is what others
    run of the same commit, while each commit draws something else; any else."""
    given = os.environ.get("DDPRUN_TEST_SEED") or os.environ.get("DDPRUN_TEST_COMMIT_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)
