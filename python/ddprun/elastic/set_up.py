"""What collectives of a script's set-up return on a worker that comes later.

It sets itself up alone, because its peers train. It gets what they have exchanged in their set-up: the name of a run, a seed that
rank 0 has drawn, the size of a data set. The k-th collective of one kind and shape returns what the peers' k-th has returned,
because a later worker may pass over others, as a barrier around a download:

    peers:       broadcast int64[1]: 17   broadcast uint8[17]: "runs/3"   barrier   broadcast int64[1]: 4   all-reduce float[1]: 44.0
    new worker:  broadcast int64[1]: 17   broadcast uint8[17]: "runs/3"             broadcast int64[1]: 4   all-reduce float[1]: 44.0

What wrappers of models broadcast isn't kept, and of parameters that a script broadcasts not all: a peer's state takes their place.
A result that differs by rank, as a scatter's, can't be had from a peer: then a loss restarts all processes.
"""

import threading

import torch

from ddprun.elastic import callers
from ddprun.elastic.groups import groups
from ddprun.elastic.journal import EQUAL, Done, bytes_in, fill
from ddprun.elastic.transfer import copied, tensors_in

_DIFFER = ("scatter", "alltoall", "alltoall_base", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_BYTES_MAX = 1 << 20


class SetUp:
    """The set-up of this process. Threads: the one that makes it."""

    def __init__(self, results=None):
        """results: what peers have had; None = this process has peers that set themselves up, too."""
        self.results = {} if results is None else results  # (name, shapes) -> values, the first one first
        self.why = ""  # a later worker can't be given all
        self._is_alone, self._bytes, self._taken = results is not None, 0, {}
        self._thread = threading.get_ident()

    def takes(self, group, name):
        """Whether run() is for a call of a group's."""
        return (not self.why and name in (*EQUAL, *_DIFFER) and groups.is_all(group) and threading.get_ident() == self._thread
                and not callers.is_of_models())

    def has_objects(self, number):
        """Whether the next broadcast of so many objects returns what peers have had."""
        key = ("broadcast", (((number,), torch.int64),))
        return self._is_alone and self._taken.get(key, -1) + 1 < len(self.results.get(key, []))

    def run(self, group, name, arguments, named):
        """Does a collective, or repeats what it has returned. Returns its work."""
        outputs = arguments[0]
        key = (name, tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(outputs)))
        if self._is_alone:
            number = self._taken[key] = self._taken.get(key, -1) + 1
            if number < len(self.results.get(key, [])):
                fill(outputs, self.results[key][number])
                return Done(outputs)
            return group.backend.run(name, arguments, named)
        work = group.backend.run(name, arguments, named)
        if name in _DIFFER:
            self.why = f"the script's set-up has called {name.strip('_')}, and a new worker can't be given its result"
            return work
        size = bytes_in(outputs)
        if self._bytes + size <= _BYTES_MAX:
            if work is not None:
                work.wait()
            self._bytes += size
            self.results.setdefault(key, []).append(copied(outputs))
        elif not all(tensor.is_floating_point() for tensor in tensors_in(outputs)):  # else a script's own way to equal parameters
            self.why = f"collectives of the script's set-up have given more than {_BYTES_MAX >> 20} MiB, which a new worker can't be given"
        return work
