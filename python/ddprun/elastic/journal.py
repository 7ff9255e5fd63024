"""Repeats the collectives that a peer's loss breaks, where they are called, and keeps their results for ranks that come later.

A framework has collectives of its own between two updates of the parameters: a metric's mean, a barrier around a checkpoint, the
name of a file. A survivor can't go back to the last update from there, because callbacks have done things that can't be undone.
So it waits in its broken collective until the ranks have met, and repeats that collective. A newcomer begins at the last update
and does alone what the others have done since; its collectives return what the others' have returned. It meets them in the one
that was broken.

The invariant: all ranks call the same collectives of the group of all ranks, in the same order, between the same updates. So
`(updates, number)` names a collective on all ranks:

    rank 0: update 8, (8, 0) done, (8, 1) done, in (8, 2)     rank 1: update 8, (8, 0) done, in (8, 1)     rank 2: lost
    they meet: rank 0's results are newest, and all get them; rank 1 has (8, 1) from them
    rank 2 begins with the state of update 8, takes (8, 0) and (8, 1) from them, and all three repeat (8, 2)

What a collective returns on one rank must be what it returns on all, as a sum or a broadcast does. The result of a gather or a
scatter differs, so a newcomer can't repeat a part with one; it ends with an error, and all processes are restarted.
"""

import contextlib
import threading

import torch

from ddprun.elastic.groups import POINT_TO_POINT, PythonWork, groups
from ddprun.elastic.transfer import copied

# The first argument is what they fill, with the same values on all ranks; a barrier fills nothing.
EQUAL = ("allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_into_tensor_coalesced",
          "allgather_coalesced", "broadcast")
_EMPTY = ("barrier", "monitored_barrier")
SET_UP = -1  # "updates" before the first update is under way
_OTHER, _TOO_LARGE = "other", "too large"
_BYTES_MAX = 256 << 20  # of results that are kept


class Done(PythonWork):
    """A collective that is over."""

    def __init__(self, outputs):
        super().__init__()
        self._outputs = outputs

    def wait(self, timeout=None):
        self.asked()
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def result(self):
        return self._outputs

    def get_future(self):
        self.asked()
        future = torch.futures.Future()
        future.set_result(self._outputs)
        return future


def fill(outputs, values):
    """Copies a tree's tensors into another one's."""
    if isinstance(outputs, torch.Tensor):
        with torch.no_grad():
            outputs.copy_(values)
    elif isinstance(outputs, (list, tuple)):
        for output, value in zip(outputs, values):
            fill(output, value)


def bytes_in(tree):
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    return sum(map(bytes_in, tree))


class Journal:
    """The journal of the thread that makes it."""

    def __init__(self, is_peers, recover, is_aside):
        """is_peers(error): whether a peer's loss is its cause. recover(): meets the others; None until the training begins.
        is_aside(): whether the program is in a part that newcomers pass over or do alone."""
        self._is_peers, self._is_aside = is_peers, is_aside
        self.recover = recover
        self.at = (SET_UP, 0)   # the next collective
        self.entries = {}       # at -> (name, kind, results)
        self._bytes = 0
        self._pauses = 0
        self.depth = 0          # calls of the program's own within what is paused
        self._thread = threading.get_ident()
        self.alone = ""         # on a newcomer, while nobody answers its collectives: where it is

    def takes(self, group, name):
        """Whether run() is for a call of a group's."""
        return ((self._pauses == 0 or self.depth > 0) and name not in POINT_TO_POINT and groups.is_all(group)
                and threading.get_ident() == self._thread and not self._is_aside())

    @contextlib.contextmanager
    def paused(self):
        """Within, collectives are done once, and their errors are the caller's; except where `depth` is raised meanwhile."""
        self._pauses, depth, self.depth = self._pauses + 1, self.depth, 0
        try:
            yield
        finally:
            self._pauses, self.depth = self._pauses - 1, depth

    def count(self, updates):
        """How many collectives after an update have results."""
        number = 0
        while (updates, number) in self.entries:
            number += 1
        return number

    def go_to(self, updates, number=0):
        """The next collective is that one. Forgets what nobody can need any more."""
        self.at = (updates, number)
        for key in [key for key in self.entries if key[0] < updates - 1]:
            self._bytes -= bytes_in(self.entries.pop(key)[2])

    def slice(self, begin):
        """The results from a place on, up to the next collective."""
        return [self.entries[key] for key in sorted(self.entries) if begin <= key < self.at]

    def take(self, entries):
        """Takes a peer's results."""
        for key, entry in entries.items():
            if key not in self.entries:
                self._keep(key, *entry)

    def run(self, group, name, arguments, named):
        """Does a collective, or repeats what it has returned. Returns its work, which is over."""
        key, self.at = self.at, (self.at[0], self.at[1] + 1)
        kind = "equal" if name in EQUAL else "empty" if name in _EMPTY else _OTHER
        outputs = arguments[0] if kind == "equal" else []
        given = copied(arguments) if self.recover is not None else ()
        while key not in self.entries:
            if self.alone:
                raise RuntimeError(f"ddprun.elastic: a new worker does {name} {self.alone}, which its peers haven't done there: a program "
                                   "must call the same collectives in each of its processes")
            work = self._try(group, name, arguments, named)
            if work is not None:
                self._keep(key, name, kind, copied(outputs))
                return work
            fill(arguments, given)
            self.recover()
        there, kind, values = self.entries[key]
        if there != name:
            raise RuntimeError(f"ddprun.elastic: this worker does {name} where its peers have done {there}: a program must call the same "
                               "collectives in each of its processes")
        if kind in (_OTHER, _TOO_LARGE):
            raise RuntimeError(f"ddprun.elastic: {name} can't be repeated on a rank that has missed it: its result "
                               f"{'differs by rank' if kind == _OTHER else 'is too large to be kept'}")
        fill(outputs, values)
        return Done(outputs)

    def _try(self, group, name, arguments, named):
        """The work of a collective, or None if a peer's loss has broken it."""
        try:
            with self.paused():
                work = group.backend.run(name, arguments, named) or Done([])
                work.wait()
            return None if groups.gave_up() else work
        except RuntimeError as error:
            if self.recover is None or not self._is_peers(error):
                raise
            return None

    def _keep(self, key, name, kind, values):
        size = bytes_in(values)
        if self._bytes + size > _BYTES_MAX:
            kind, values, size = _TOO_LARGE, [], 0
        self._bytes += size
        self.entries[key] = (name, kind, values)
