"""The state of a training at one moment, as a text and the memory of its tensors, and back.

Only optimizer.step() changes parameters and the optimizers' state. So these tensors, nearly all of a state, aren't copied when the
snapshot is taken: a thread copies them beside the next step's forward and backward passes, and the next optimizer.step() waits
until they are copied. Everything else is copied at once: buffers, which forward passes change, schedulers, generators, the place
in the data. Tensors of a GPU are copied to pinned memory on a stream of their own, for which the optimizer's stream waits.

    step 40 | save(40): small things | forward | backward | (wait) optimizer.step() | step 41
                        ^-- a thread copies parameters and optimizer state --^
"""

import math
import pickle

import torch

from ddprun.elastic.slots import size_of
from ddprun.elastic.transfer import mapped, state_of

# Smaller tensors are copied at once; to wait for them costs more.
_SMALL_BYTES = 65536
_TEXT_BYTES = 256  # of the text for each tensor, at most about


class _Leaf:
    """A tensor's place in the tree: its number, shape and dtype; `whole`: (shape, stride) of the DTensor, if the tensor is a
    shard of one; whether all ranks have the same."""

    def __init__(self, number, tensor, whole, is_shared):
        self.number, self.shape, self.dtype, self.whole, self.is_shared = number, tuple(tensor.shape), tensor.dtype, whole, is_shared


def local_of(tensor):
    """This rank's shard of a DTensor; other tensors themselves."""
    return getattr(tensor, "_local_tensor", tensor).detach()


def storages_of(optimizers):
    """The memory of what only optimizer.step() changes."""
    found = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            found.update(storage_of(parameter) for parameter in group["params"])
        mapped(dict(optimizer.state.items()), lambda tensor: found.add(storage_of(tensor)))
    return found


def size_ahead(tree, optimizers):
    """About how large a checkpoint of a state will be when the optimizers have made theirs, which most do in their first step."""
    sizes = []
    mapped(tree, lambda tensor: sizes.append(_bytes_of(local_of(tensor))))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            copies = (1 if group.get("momentum") else 0) if isinstance(optimizer, torch.optim.SGD) else \
                3 if group.get("amsgrad") else 2
            for parameter in group["params"]:
                if parameter not in optimizer.state:
                    sizes += [_bytes_of(local_of(parameter))] * copies + [4]
    return size_of(b"", sizes) + sum(_TEXT_BYTES for _ in sizes) + _SMALL_BYTES


def storage_of(tensor):
    """The address of its memory."""
    return local_of(tensor).untyped_storage().data_ptr()


def _is_plain(tensor):
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type in ("cpu", "cuda")


def _bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


class Snapshot:
    """Threads: made, and put before an update, by the one that trains; the other methods by one other."""

    def __init__(self, tree, constant, staging, shared=frozenset()):
        """constant: storages that nothing changes before before_update(). staging: a Staging, of nobody else meanwhile. shared:
        storages that are the same on all ranks."""
        self._shared = shared
        self._leaves, self._known, self._tensors, self._versions = 0, {}, [], []
        self._constant, self._staging, self._event, self._stream = constant, staging, None, None
        self.text = pickle.dumps(mapped(tree, self._take), protocol=4)
        if self._stream is not None:
            self._event = torch.cuda.Event()
            self._event.record(self._stream)
        self.waits = bool(self._versions)  # for the copies of tensors of the CPU

    def _take(self, tensor):
        local = local_of(tensor)
        if not _is_plain(local):
            return tensor  # goes into the text
        whole = (tuple(tensor.shape), tuple(tensor.stride())) if hasattr(tensor, "_local_tensor") else None
        key = (local.data_ptr(), local.dtype, tuple(local.shape), local.stride()) if local.numel() else None
        number = self._known.get(key) if key is not None else None
        if number is None:
            number = len(self._tensors)
            self._tensors.append(self._copied(local, number))
            if key is not None:
                self._known[key] = number
        is_shared = _bytes_of(local) >= _SMALL_BYTES and local.untyped_storage().data_ptr() in self._shared
        return _Leaf(number, local, whole, is_shared)

    def _copied(self, local, number):
        is_constant = _bytes_of(local) >= _SMALL_BYTES and local.untyped_storage().data_ptr() in self._constant
        if local.device.type == "cuda":
            return self._to_host(local if is_constant else local.clone(), number)
        if not is_constant or not local.is_contiguous():
            return local.clone(memory_format=torch.contiguous_format)
        self._versions.append((local, local._version))
        return local

    def _to_host(self, tensor, number):
        if self._stream is None:
            self._stream = self._staging.stream()
            self._stream.wait_stream(torch.cuda.current_stream())
        host = self._staging.place(number, tensor)
        with torch.cuda.stream(self._stream):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)
        return host

    def before_update(self):
        """Makes the GPU wait for its copies before it changes what is copied."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)

    def pieces(self):
        """(address, size) of each tensor. Waits for the GPU's copies."""
        if self._event is not None:
            self._event.synchronize()
        return [(tensor.data_ptr(), _bytes_of(tensor)) for tensor in self._tensors]

    def is_right(self):
        """Whether what is copied beside the training was constant meanwhile, as far as torch counts changes."""
        return all(tensor._version == version for tensor, version in self._versions)


class Staging:
    """Pinned memory and a stream for copies from a GPU, kept from one snapshot to the next."""

    def __init__(self):
        self._places, self._stream = {}, None

    def stream(self):
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        return self._stream

    def place(self, number, tensor):
        place = self._places.get(number)
        if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
            place = self._places[number] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return place


def peek(text):
    """Returns the tree, with something else in place of each tensor."""
    return pickle.loads(text)


def pieces_of(text):
    """[(bytes, whether all ranks have the same)] of each tensor, in order."""
    leaves = {}
    mapped(pickle.loads(text), lambda leaf: leaves.setdefault(leaf.number, leaf), _Leaf)
    return [(math.prod(leaf.shape) * leaf.dtype.itemsize, leaf.is_shared) for _, leaf in sorted(leaves.items())]


def load(text, read, modules):
    """Returns the tree. read([(address, size)]) fills memory with the tensors' bytes.

    modules: {keys to its state in the tree: module}. The tensors of a module whose state has the same form are read into the module's
    own memory, and None stands in the tree in place of its state.
    """
    tree = pickle.loads(text)
    leaves, targets, copies = {}, {}, []
    mapped(tree, lambda leaf: leaves.setdefault(leaf.number, leaf), _Leaf)
    for (*keys, last), module in modules.items():
        place = tree
        for key in keys:
            place = place[key]
        own = _own_tensors(module, place[last])
        if own is None:
            continue
        place[last] = None
        for number, tensor in own:
            if number in targets or tensor.device.type != "cpu" or not tensor.is_contiguous():
                copies.append((number, tensor))
            else:
                targets[number] = tensor
    for number, leaf in leaves.items():
        if number not in targets:
            targets[number] = torch.empty(leaf.shape, dtype=leaf.dtype)
    read([(targets[number].data_ptr(), _bytes_of(targets[number])) for number in sorted(targets)])
    for number, tensor in copies:
        tensor.copy_(targets[number])
    return mapped(tree, lambda leaf: Shard(targets[leaf.number], *leaf.whole) if leaf.whole else targets[leaf.number], _Leaf)


class Shard:
    """A tensor that is this rank's shard of a whole one."""

    def __init__(self, tensor, shape, stride):
        self.tensor, self.shape, self.stride = tensor, shape, stride


def _own_tensors(module, state):
    """[(leaf's number, the module's own tensor)] where state is all tensors, of the same form; else None."""
    own = state_of(module)
    homes = {storage_of(one) for one in (*module.parameters(), *module.buffers())}
    if list(own) != list(state):
        return None
    found = []
    for name, leaf in state.items():
        tensor = local_of(own[name]) if isinstance(own[name], torch.Tensor) else None
        if tensor is None or not isinstance(leaf, _Leaf) or tuple(tensor.shape) != leaf.shape or tensor.dtype != leaf.dtype:
            return None
        if tensor.numel() and storage_of(tensor) not in homes:
            return None  # a copy that a hook has made
        found.append((leaf.number, tensor))
    return found


def load_optimizer(optimizer, state):
    """optimizer.load_state_dict(), in which shards become DTensors as their parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    whole = {**state, "state": {number: mapped(values, lambda shard, number=number: _sharded(shard, parameters[number]), Shard)
                                for number, values in state["state"].items()}}
    optimizer.load_state_dict(whole)


def as_own(tree, own):
    """A tree in which shards become DTensors as those in the same places of a tree of this rank's own."""
    if isinstance(tree, Shard):
        return _sharded(tree, own) if hasattr(own, "_local_tensor") else tree.tensor
    if isinstance(tree, dict):
        return {key: as_own(value, own.get(key) if isinstance(own, dict) else None) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        others = own if isinstance(own, (list, tuple)) and len(own) == len(tree) else [None] * len(tree)
        return type(tree)(as_own(value, other) for value, other in zip(tree, others))
    return tree


def _sharded(shard, parameter):
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(shard.tensor.to(parameter.device), parameter.device_mesh, parameter.placements, run_check=False,
                              shape=torch.Size(shard.shape), stride=shard.stride)
