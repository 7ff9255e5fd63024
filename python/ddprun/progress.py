"""The page of progress that a worker shares with its agent (docs/PROGRESS.md, "The page")."""

import enum
import functools
import mmap
import os
import struct
import threading
import time

_PAGE_BYTES = 4096
_MAGIC = b"DDPRUNPG"
_VERSION = 1
# 64-bit words of the page.
_VERSION_WORD, _MARK, _TIME, _PREPARE, _ANSWER, _COMMIT, _DATA_WAIT = 1, 8, 9, 16, 24, 32, 40
_LOSS, _RATE, _TOLD = 56, 57, 58
_TOLD_LOSS, _TOLD_RATE = 1, 2
_STEP_BITS = 56
_WAIT_SECONDS = 0.001  # between two looks while a stop step is being agreed on


class Phase(enum.IntEnum):
    """What a worker is doing. IDLE and DONE are not timed."""

    START = 1
    TRAIN = 2
    CHECKPOINT = 3
    EVALUATION = 4
    IDLE = 5
    DONE = 6


# In the place of Phase.TRAIN: a step of a loop that doesn't mark what it does between two steps, as an evaluation. Its silence is
# judged as that of a script that marks nothing (base/progress_page.h).
STEP = 8


def _open_page(path):
    """The page's words, or None if there is no page of a known version."""
    if not path:
        return None
    try:
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), _PAGE_BYTES)
    except (OSError, ValueError):
        return None  # a user or pid namespace of its own: the worker runs unmarked
    words = memoryview(memory).cast("Q")
    if memory[:len(_MAGIC)] != _MAGIC or words[_VERSION_WORD] != _VERSION:
        return None
    return words


# The agent answers by a store into the page, which wakes no thread.
_nap = threading.Event()


@functools.lru_cache(maxsize=None)
def _page():
    """The page of this process, opened at its first use: an import reads no variable that differs between workers, so that the
    module can be imported ahead (docs/WARM.md)."""
    return _open_page(os.environ.get("DDPRUN_PROGRESS", ""))


def mark(phase, step):
    """Reports what this worker is doing: one store into shared memory. Call it on every rank, with a step that only grows."""
    page = _page()
    if page is not None:
        page[_TIME] = time.monotonic_ns()
        page[_MARK] = int(phase) << _STEP_BITS | step


def add_data_wait(seconds):
    """Adds to the time for which this worker has waited for data (docs/GOODPUT.md)."""
    page = _page()
    if page is not None and seconds > 0:
        page[_DATA_WAIT] += round(seconds * 1e9)


def _store(page, word, figure, told):
    page[word] = struct.unpack("Q", struct.pack("d", figure))[0]
    page[_TOLD] |= told


def report(loss=None, samples_per_second=None):
    """Shows how this worker's training goes on the page, in `ddprun status` and in metrics; what isn't given stays as it was.

    Both are numbers, of this worker alone: ddprun takes the mean of losses, and the sum of samples (or tokens) a second. Two
    stores into shared memory; but float(tensor) waits for the GPU, so report at every tenth step or so.
    """
    page = _page()
    if page is None:
        return
    if loss is not None:
        _store(page, _LOSS, float(loss), _TOLD_LOSS)
    if samples_per_second is not None:
        _store(page, _RATE, float(samples_per_second), _TOLD_RATE)


def timed(batches):
    """Yields what `batches` yields, and records how long the training waited for each (docs/GOODPUT.md)."""
    iterator = iter(batches)
    while True:
        asked = time.monotonic()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        finally:
            add_data_wait(time.monotonic() - asked)
        yield batch


def stop_at(step):
    """Marks a training step that is about to begin; returns True if this rank must save the state before it and end.

    All ranks get True at the same step, which no rank has begun. May wait while the ranks agree; between the top of a step and
    this call the program mustn't wait for other ranks.
    """
    mark(Phase.TRAIN, step)
    page = _page()
    if page is None:
        return False
    page[_ANSWER] = 1
    while 0 < page[_PREPARE] <= step:
        page[_ANSWER] = step << 1 | 1
        if 0 < page[_COMMIT] <= step:
            return True
        _nap.wait(_WAIT_SECONDS)
    return False
