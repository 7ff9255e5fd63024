"""What a program of a test says of its own progress."""

from ddprun import progress


def marked_phase():
    """The phase that this process has marked last (progress.Phase or STEP); None: ddprun hasn't started it."""
    page = progress._page()
    return None if page is None else page[progress._MARK] >> progress._STEP_BITS
