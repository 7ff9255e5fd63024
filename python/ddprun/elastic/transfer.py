"""Sends a state to ranks that are new or have fallen behind: a tree of dicts, lists, plain values and tensors, from one rank to
all others. Large tensors are sent from their own memory and received into their own."""

import collections.abc
import copy
import pickle

import torch
import torch.distributed as dist

# Smaller tensors are sent together.
_SMALL_BYTES = 65536
_PLAIN = (int, float, str, bool, type(None))
_CONTAINERS = (collections.deque, set, bytearray)  # that hold no tensors


class _Tensor:
    """A tensor's place in the tree."""

    def __init__(self, number):
        self.number = number


def packed(tree):
    """(the tree without its tensors, as bytes; the tensors)."""
    tensors = []

    def number(tensor):
        tensors.append(tensor)
        return _Tensor(len(tensors) - 1)
    return pickle.dumps(mapped(tree, number)), tensors


def unpacked(text, tensors):
    """The tree of packed()."""
    return mapped(pickle.loads(text), lambda place: tensors[place.number], _Tensor)


def shapes_of(tensors):
    """Shapes and dtypes, as bytes."""
    return pickle.dumps([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])


def empty_like(shapes):
    """Tensors of shapes_of(), on the CPU."""
    return [torch.empty(shape, dtype=dtype) for shape, dtype in pickle.loads(shapes)]


def bytes_of(tensor):
    """The bytes of a tensor on the CPU; its own memory, if it is contiguous."""
    return memoryview(_flat(tensor).numpy())


def copied(tree):
    """A copy of a tree that shares nothing with it."""
    def of_other(value):
        return copy.deepcopy(value) if isinstance(value, _CONTAINERS) or type(value).__module__ == "numpy" else value
    return mapped(tree, lambda tensor: tensor.detach().clone(), other=of_other)


def refolded(tree):
    """The tree in containers of its own, which a program may change; the leaves are the same."""
    if type(tree) is dict:
        return {key: refolded(value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map(refolded, tree))
    return copy.copy(tree) if isinstance(tree, collections.abc.Mapping) else tree


def tensors_in(tree):
    """The tensors that are leaves of a tree."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, collections.abc.Mapping):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return []
    return [tensor for value in tree for tensor in tensors_in(value)]


def mapped(tree, change, kind=torch.Tensor, other=lambda leaf: leaf):
    """The tree with change(leaf) in place of each leaf of a kind, and other(leaf) in that of those of unknown kinds."""
    if type(tree) in _PLAIN:
        return tree
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        changed = {key: mapped(value, change, kind, other) for key, value in tree.items()}
        return changed if type(tree) is not collections.Counter else collections.Counter(changed)
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree)(mapped(value, change, kind, other) for value in tree)
    return other(tree)


def state_of(module):
    """A module's whole state. A script may have put a state_dict() of its own into a model, for smaller checkpoints."""
    replaced = [(one, vars(one).pop("state_dict")) for one in module.modules() if "state_dict" in vars(one)]
    try:
        return torch.nn.Module.state_dict(module)
    finally:
        for one, own in replaced:
            vars(one)["state_dict"] = own


def load_into(module, state):
    """state: state_of() a peer's."""
    torch.nn.Module.load_state_dict(module, state)


def version_of(tensor):
    """torch's count of changes to a tensor; 0 where it doesn't count."""
    return 0 if tensor.is_inference() else tensor._version


def _size(tensor):
    return tensor.numel() * tensor.element_size()


def _flat(tensor):
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


def _values(flat, tensor):
    """Bytes as values like a tensor's; a copy, because their place may not be one where such values may lie."""
    return flat.clone().view(tensor.dtype).reshape(tensor.shape)


def _broadcast(group, tensor, source):
    options = dist.BroadcastOptions()
    options.rootRank = source
    group.broadcast([tensor], options).wait()


def broadcast(group, tree, source, rank):
    """Sends `source`'s tree to all ranks of a group. tree: the tree on `source`. Returns the tree, with tensors on the CPU. Raises
    any failure of the group."""
    length, text, tensors = torch.zeros(1, dtype=torch.int64), b"", []
    if rank == source:
        whole, tensors = packed(tree)
        text = pickle.dumps((whole, shapes_of(tensors)))
        length[0] = len(text)
    _broadcast(group, length, source)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8) if rank == source else torch.empty(int(length), dtype=torch.uint8)
    _broadcast(group, data, source)
    if rank != source:
        whole, shapes = pickle.loads(data.numpy().tobytes())
        tensors = empty_like(shapes)
    small = [tensor for tensor in tensors if 0 < _size(tensor) < _SMALL_BYTES]
    if small:
        flat = torch.cat([_flat(tensor.cpu()) for tensor in small])
        _broadcast(group, flat, source)
        if rank != source:
            at = 0
            for tensor in small:
                size = _size(tensor)
                tensor.copy_(_values(flat[at:at + size], tensor))
                at += size
    for tensor in tensors:
        if _size(tensor) >= _SMALL_BYTES:
            # As bytes: Gloo has no sums of some dtypes, but moves bytes.
            flat = _flat(tensor.cpu())
            _broadcast(group, flat, source)
            if rank != source and flat.data_ptr() != tensor.data_ptr():
                tensor.copy_(_values(flat, tensor))
    return tree if rank == source else unpacked(whole, tensors)
