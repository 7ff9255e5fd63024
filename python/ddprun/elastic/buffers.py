"""A model's buffers: such as the running means of a BatchNorm; and parameters without gradients that its passes change.

A module may replace a buffer by another tensor in each pass (pytorch/pytorch#63916). So they are looked up in the modules' own
dictionaries whenever they are needed.

A backward pass refuses tensors that have changed since its forward pass, by torch's count of changes. An update of one model may
come between the two passes of another, as in a GAN. So buffers that such a pass doesn't read, or that keep their values, are
written without being counted (`tensor.data`).

A momentum encoder is made of parameters that no optimizer updates: each pass, or the loop's body, moves them towards others. A
step that comes again would move them twice. Most parameters without gradients are frozen, though, and may be large: copies are
made of those that have moved, which is seen by torch's counts, and by sums in the first steps.
"""

import contextlib

import torch
import torch.distributed as dist

from ddprun.elastic.transfer import version_of

_ALIGNMENT = 16  # of any dtype
_PACKED_BYTES_MAX = 16 << 20  # larger packs are not kept from one step to the next
_STEPS_WITH_SUMS = 4  # in the first one momentum may be that of equal parameters
_PARAMETER = -1  # stands for a module in a parameter's place


class Buffers:
    """A *place* is (the number of a module, a name in it): a pass may make a buffer that other ranks don't have so far."""

    def __init__(self, module, ignored=()):
        """ignored: names of buffers that equalize() leaves as they are."""
        self._modules, self._numbers = list(module.modules()), {}
        for name, one in module.named_modules():
            self._numbers[name] = len(self._numbers)
        self._owners = [one._buffers for one in self._modules]
        self._ignored = {(id(one._buffers), name) for prefix, one in module.named_modules() for name in one._buffers
                         if f"{prefix}.{name}".lstrip(".") in ignored}
        # Statistics of a normalization: passes that change them don't read them again.
        self._unread = {id(one._buffers) for one in self._modules if isinstance(one, torch.nn.modules.batchnorm._NormBase)}
        self._of, self._copies = [], []        # what keep() has copied, and the copies
        self._places = []                      # of these
        self._versions = {}                    # of what keep() has copied: {id: version}
        self._frozen = {number: one for number, one in enumerate(module.parameters()) if not one.requires_grad}
        self._moving, self._marks = {}, {}     # those of them that move; {number: what has changed after a move}
        self._steps_with_sums = _STEPS_WITH_SUMS
        self._packed_of, self._packs = [], []  # what equalize() sends, and [(a device's bytes, places in them, tensors)]

    def tensors(self):
        return [tensor for owner in self._owners for tensor in owner.values() if tensor is not None]

    def placed(self):
        """{place: buffer, or parameter that moves}"""
        found = {(number, name): tensor for number, owner in enumerate(self._owners) for name, tensor in owner.items() if tensor is not None}
        found.update(((_PARAMETER, number), one) for number, one in self._moving.items() if not one.requires_grad)
        return found

    def unsaved(self):
        """{place: buffer} of those that state_dict() leaves out; and parameters that move, so that a peer knows which."""
        return {(number, name): tensor for (number, name), tensor in self.placed().items()
                if number == _PARAMETER or name in self._modules[number]._non_persistent_buffers_set}

    def put_unsaved(self, values):
        """values: unsaved() of a peer."""
        for (number, name), value in values.items():
            if number != _PARAMETER:
                self._modules[number]._non_persistent_buffers_set.add(name)
            self._put(number, name, value)

    def make(self, state):
        """Makes the buffers of a peer's state_dict() that a pass would make here."""
        for key, value in state.items():
            path, _, name = key.rpartition(".")
            number = self._numbers.get(path)
            if number is None or not isinstance(value, torch.Tensor) or name == "_extra_state":
                continue
            module = self._modules[number]
            if module._parameters.get(name) is None and module._buffers.get(name) is None and getattr(module, name, None) is None:
                self._put(number, name, value)

    def copies(self):
        """{place: copy}"""
        return {place: tensor.detach().clone() for place, tensor in self.placed().items()}

    def put(self, values):
        """values: copies(), or those of a peer. A buffer that they lack was made since, and is None again."""
        for number, name in self.placed().keys() - values.keys():
            if number != _PARAMETER:
                self._owners[number][name] = None
        for (number, name), value in values.items():
            self._put(number, name, value)

    def keep(self):
        """Keeps copies of all."""
        if self._frozen:
            self._look_for_moves()
        tensors = list(self.placed().values()) if self._moving else self.tensors()
        if not _are_same(tensors, self._of):
            self._of, self._copies = tensors, [tensor.detach().clone() for tensor in tensors]
            self._places = list(self.placed())
        elif tensors:
            torch._foreach_copy_(self._copies, tensors)
        self._versions = {id(tensor): version_of(tensor) for owner in self._owners if id(owner) not in self._unread
                          for tensor in owner.values() if tensor is not None}

    def _look_for_moves(self):
        self._steps_with_sums = max(self._steps_with_sums - 1, 0)
        for number, one in self._frozen.items():
            if not one.requires_grad and number not in self._moving:
                mark = _marks_of(one, with_sum=self._steps_with_sums > 0)
                if any(before != now for before, now in zip(self._marks.get(number, mark), mark)):
                    self._moving[number] = one
                self._marks[number] = mark

    def kept(self):
        """{place: copy} that keep() has made."""
        return dict(zip(self._places, self._copies))

    def equalize(self, group, waits=False):
        """Copies rank 0's buffers to all ranks of a group, in one message for each device. A collective.

        waits: a pass of the model may be under way, so buffers that it has changed, and may read, stay as they are.
        """
        tensors = self.tensors() if not self._ignored else [
            tensor for owner in self._owners for name, tensor in owner.items()
            if tensor is not None and (id(owner), name) not in self._ignored]
        if not tensors:
            return
        packs = self._packs
        if not _are_same(tensors, self._packed_of):
            packs = _packs(tensors)
            is_small = sum(data.numel() for data, _, _ in packs) <= _PACKED_BYTES_MAX
            self._packed_of, self._packs = (tensors, packs) if is_small else ([], [])
        is_source, options = group.rank() == 0, dist.BroadcastOptions()
        with torch.no_grad():
            for data, places, own in packs:
                if is_source:
                    torch._foreach_copy_(places, own)
                group.broadcast([data], options).wait()
                if not is_source:
                    unread = {id(tensor) for owner in self._owners if id(owner) in self._unread for tensor in owner.values()}
                    uncounted = [id(one) in unread or self._versions.get(id(one)) == version_of(one) for one in own]
                    pairs = [(one.data if is_uncounted else one, place) for one, place, is_uncounted in zip(own, places, uncounted)
                             if is_uncounted or not waits]
                    if pairs:
                        torch._foreach_copy_(*map(list, zip(*pairs)))

    def _put(self, number, name, value):
        if number == _PARAMETER:
            one = self._frozen.get(name)
            if one is not None and not one.requires_grad:
                self._moving[name] = one
                one.data.copy_(value)
            return
        owner = self._owners[number]
        own = owner.get(name)
        with torch.no_grad():
            if own is None or own.shape != value.shape:
                vars(self._modules[number]).pop(name, None)  # an attribute, in the buffer's place so far
                owner[name] = value.to(value.device if own is None else own.device, copy=True)
            elif id(owner) in self._unread:
                own.data.copy_(value)
            elif own.device != value.device or not torch.equal(own, value):
                own.copy_(value)


def _marks_of(tensor, with_sum):
    """What changes with a tensor."""
    marks = [version_of(tensor)]
    with contextlib.suppress(RuntimeError):  # of a tensor of an odd kind
        marks.append(tensor.data_ptr())
        if with_sum:
            marks.append(tensor.detach().sum(dtype=torch.float64).nan_to_num().item())
    return marks


def _are_same(some, others):
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))


def _packs(tensors):
    """[(bytes, tensors in them, tensors of the same shapes)] for each device."""
    found = []
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        own = [tensor for tensor in tensors if tensor.device == device and tensor.numel()]
        ends, end = [], 0
        for tensor in own:
            end = -(-end // _ALIGNMENT) * _ALIGNMENT + tensor.numel() * tensor.element_size()
            ends.append(end)
        data = torch.empty(end, dtype=torch.uint8, device=device)
        places = [data[end - one.numel() * one.element_size():end].view(one.dtype).view(one.shape) for one, end in zip(own, ends)]
        found.append((data, places, own))
    return found
