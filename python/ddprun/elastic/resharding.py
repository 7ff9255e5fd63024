"""A state that a number of ranks have saved, for another number of ranks.

What isn't in shards is the same on all ranks, or a rank's own: each rank takes it from one former rank. A tensor of FSDP2's is cut
along one dimension, as torch.chunk() cuts, so that a new shard has parts of one or several former ones:

    ten rows, saved by 4 ranks:   0 1 2 | 3 4 5 | 6 7 8 | 9
    for 3 ranks:                  0 1 2 3 | 4 5 6 7 | 8 9
    rank 1 takes rows 4 and 5 from the former rank 1, and rows 6 and 7 from the former rank 2

One former rank's state at a time is in memory beside the new one.
"""

import torch

from ddprun.elastic.snapshot import Shard
from ddprun.elastic.transfer import state_of


class OtherLayout(Exception):
    """A tensor isn't cut along one dimension only."""


def tree_of(load, world, rank, size, own):
    """Returns this rank's tree, with shards as snapshot.load() returns them.

    load(source): the tree of one of `world` former ranks. size: the number of ranks now. own: for each place of the tree where there
    are shards this rank's DTensor, or the one of the parameter to which a dict of them belongs. OtherLayout.
    """
    first = rank % world
    tree, parts = load(first), {}
    for path, shard, like in _shards_in(tree, own):
        part = parts[path] = _Part(like, shard, rank, size)
        part.take(shard.tensor, first, world)
        shard.tensor = part.tensor
    for source in range(world):
        if source != first and any(part.needs(source, world) for part in parts.values()):
            for path, shard, _ in _shards_in(load(source), own):
                parts[path].take(shard.tensor, source, world)
    return tree


def likes_of(part):
    """`own` for the state of a module, an optimizer, or another thing with state_dict()."""
    if isinstance(part, torch.optim.Optimizer):
        return {"state": dict(enumerate(parameter for group in part.param_groups for parameter in group["params"]))}
    if isinstance(part, torch.nn.Module):
        return state_of(part)
    return part.state_dict() if hasattr(part, "state_dict") else None


def _shards_in(tree, own, path=()):
    """(path, shard, this rank's DTensor) of each."""
    if isinstance(tree, Shard):
        yield path, tree, own
    elif isinstance(tree, (dict, list, tuple)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if isinstance(own, dict):
                of_key = own.get(key)
            elif isinstance(own, (list, tuple)):
                of_key = own[key] if key < len(own) else None
            else:
                of_key = own
            yield from _shards_in(value, of_key, (*path, key))


def _range(length, ranks, rank):
    """The places along a dimension that a rank has, as torch.chunk() cuts."""
    most = -(-length // ranks)
    return min(rank * most, length), min((rank + 1) * most, length)


class _Part:
    """A shard that is put together."""

    def __init__(self, like, shard, rank, size):
        placements = getattr(like, "placements", ())
        if len(placements) != 1 or type(placements[0]).__name__ != "Shard" or like.device_mesh.size() != size:
            raise OtherLayout(f"a tensor of {tuple(shard.shape)} isn't cut along one dimension among all ranks")
        self._dimension, self._length = placements[0].dim, shard.shape[placements[0].dim]
        self._begin, self._end = _range(self._length, size, rank)
        shape = list(shard.shape)
        shape[self._dimension] = self._end - self._begin
        self.tensor = torch.empty(shape, dtype=shard.tensor.dtype)

    def _overlap(self, source, world):
        begin, end = _range(self._length, world, source)
        return begin, max(begin, self._begin), min(end, self._end)

    def needs(self, source, world):
        _, begin, end = self._overlap(source, world)
        return begin < end

    def take(self, tensor, source, world):
        """Takes what a former rank's shard has of it."""
        there, begin, end = self._overlap(source, world)
        if begin < end:
            self.tensor.narrow(self._dimension, begin - self._begin, end - begin).copy_(
                tensor.narrow(self._dimension, begin - there, end - begin))
