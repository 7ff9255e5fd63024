"""Whether the optimizers' rates are the same on all ranks after the loss of a worker.

A loop that computes a rate from a count of its own has another one in a new worker, where the count begins at 0. The ranks' models
would differ from then on, and nothing would fail. Each rank puts its rates into the store after the 1st, 2nd, 4th, 8th …
step; rank 0 compares them after the next step, or when all are there: no rank waits.
"""

import contextlib
import json

from ddprun.elastic.groups import groups
from ddprun.elastic.membership import say

_NAMES = ("lr", "weight_decay", "momentum", "betas")


def _plain(value):
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return float(value)  # also of a tensor


def _rates(optimizers):
    """[[name, rate]]"""
    found = []
    for optimizer in optimizers:
        for number, group in enumerate(optimizer.param_groups):
            for name in _NAMES:
                if name in group:
                    with contextlib.suppress(TypeError, ValueError, RuntimeError):
                        found.append([f"{name} of {type(optimizer).__name__}'s group {number}", _plain(group[name])])
    return found


class Rates:
    """The comparison. Threads: the one that trains."""

    def __init__(self, optimizers):
        self._optimizers, self._steps, self._open, self._is_over = optimizers, None, [], False

    def recovered(self):
        self._steps, self._open = 0, []

    def after_step(self, rank, size):
        if self._steps is None or self._is_over:
            return
        self._steps += 1
        with contextlib.suppress(RuntimeError):  # the generation has ended
            if self._open and groups.store.check(self._open):
                self._compare(groups.store.multi_get(self._open))
                self._open = []
            if self._steps & (self._steps - 1) == 0:
                keys = [f"ddprun/rates{self._steps}.{one}" for one in range(size)]
                groups.store.set(keys[rank], json.dumps(_rates(self._optimizers)))
                self._open = keys if rank == 0 else []

    def _compare(self, told):
        own, *others = (json.loads(one) for one in told)
        for rank, rates in enumerate(others, 1):
            for (name, rate), (other_name, other) in zip(own, rates):
                if name == other_name and rate != other:
                    say(f"the {name} is {rate} on rank 0 and {other} on rank {rank}, so their models differ: a loop's own count begins at 0 in "
                        "a new worker; use session.step_number or session.batch_number (docs/ELASTIC.md)")
                    self._is_over = True
                    return
