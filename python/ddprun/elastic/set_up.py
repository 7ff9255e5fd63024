"""What collectives of a script's set-up return on a worker that comes later.

It sets itself up alone, because its peers train. It gets what they have exchanged in their set-up: the name of a run, a seed that
rank 0 has drawn, the size of a data set. The k-th collective of one kind and shape returns what the peers' k-th has returned,
because a later worker may pass over others, as a barrier around a download:

    peers:       broadcast int64[1]: 17   broadcast uint8[17]: "runs/3"   barrier   broadcast int64[1]: 4   all-reduce float[1]: 44.0
    new worker:  broadcast int64[1]: 17   broadcast uint8[17]: "runs/3"             broadcast int64[1]: 4   all-reduce float[1]: 44.0

What wrappers of models broadcast isn't kept, and of parameters that a script broadcasts only a MiB: a peer's state takes their place.
A result that differs by rank, as a scatter's, can't be had from a peer: then a loss restarts all processes.
"""

import functools
import threading

import torch
import torch.distributed as dist

from ddprun.elastic import callers
from ddprun.elastic.groups import NEW_NAMES, groups
from ddprun.elastic.journal import EQUAL, Done, bytes_in, fill
from ddprun.elastic.snapshot import storage_of
from ddprun.elastic.transfer import copied, tensors_in

_DIFFER = ("scatter", "alltoall", "alltoall_base", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_BYTES_MAX = 1 << 20
_UNLIKELY = 1024  # elements that something else than a parameter, or a copy of one, has in its shape
_TOO_MUCH = f"collectives of the script's set-up have given more than {_BYTES_MAX >> 20} MiB, which a new worker can't be given"


def watch_torchs():
    """Has the set-up know the collectives of a group of torch's own. Returns a function that ends this."""
    originals = {}
    for called in (*EQUAL, *_DIFFER, *NEW_NAMES):
        original = getattr(dist.ProcessGroup, called, None)
        if original is not None:
            originals[called] = vars(dist.ProcessGroup)[called]  # since torch 2.12 getattr() returns what binds no group
            setattr(dist.ProcessGroup, called, _known(original, NEW_NAMES.get(called, called)))

    def end():
        for called, original in originals.items():
            setattr(dist.ProcessGroup, called, original)
    return end


def _known(original, name):
    @functools.wraps(original)
    def collective(group, *arguments, **named):
        set_up = groups.set_up
        if arguments and set_up is not None and set_up.takes(group, name):
            return set_up.run(lambda *_: original(group, *arguments, **named), name, arguments, named)
        return original(group, *arguments, **named)
    return collective


class SetUp:
    """The set-up of this process. Threads: the one that makes it."""

    def __init__(self, results=None):
        """results: what peers have had; None = this process has peers that set themselves up, too."""
        self.results = {} if results is None else results  # (name, shapes) -> values, the first one first
        self.why = ""  # a later worker can't be given all
        self._left_out = set()  # of broadcasts beyond the limit: {(the tensor's storage, its shape)}
        self._is_alone, self._bytes, self._taken = results is not None, 0, {}
        self._thread = threading.get_ident()

    def takes(self, group, name):
        """Whether run() is for a call of a group's."""
        is_all = groups.is_all(group) or group is dist.group.WORLD
        return (is_all and not self.why and name in (*EQUAL, *_DIFFER) and threading.get_ident() == self._thread
                and not callers.is_of_models())

    def has_objects(self, number):
        """Whether the next broadcast of so many objects returns what peers have had."""
        key = ("broadcast", (((number,), torch.int64),))
        return self._is_alone and self._taken.get(key, -1) + 1 < len(self.results.get(key, []))

    def end(self, models):
        """The set-up is over. models: what is trained. A later worker gets the state of these from a peer."""
        tensors = [one for model in models for one in (*model.parameters(), *model.buffers())]
        storages, shapes = {storage_of(one) for one in tensors}, {tuple(one.shape) for one in tensors if one.numel() >= _UNLIKELY}
        if any(storage not in storages and shape not in shapes for storage, shape in self._left_out):
            self.why = _TOO_MUCH
        self._left_out = set()

    def run(self, call, name, arguments, named):
        """Does a collective by call(name, arguments, named), or repeats what it has returned. Returns its work."""
        outputs = arguments[0]
        key = (name, tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(outputs)))
        if self._is_alone:
            number = self._taken[key] = self._taken.get(key, -1) + 1
            if number < len(self.results.get(key, [])):
                fill(outputs, self.results[key][number])
                return Done(outputs)
            return call(name, arguments, named)
        work = call(name, arguments, named)
        if name in _DIFFER:
            self.why = f"the script's set-up has called {name.strip('_')}, and a new worker can't be given its result"
            return work
        size = bytes_in(outputs)
        if self._bytes + size <= _BYTES_MAX:
            if work is not None:
                work.wait()
            self._bytes += size
            self.results.setdefault(key, []).append(copied(outputs))
        elif name == "broadcast" and all(tensor.is_floating_point() for tensor in tensors_in(outputs)):
            # Maybe a script's own way to equal parameters, which end() finds out.
            self._left_out.update((storage_of(one), tuple(one.shape)) for one in tensors_in(outputs))
        else:
            self.why = _TOO_MUCH
        return work
