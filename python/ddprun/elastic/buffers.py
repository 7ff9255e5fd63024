"""A model's buffers: such as the running means of a BatchNorm.

A module may replace a buffer by another tensor in each pass (pytorch/pytorch#63916). So they are looked up in the modules' own
dictionaries whenever they are needed.

A backward pass refuses tensors that have changed since its forward pass, by torch's count of changes. An update of one model may
come between the two passes of another, as in a GAN. So buffers that such a pass doesn't read, or that keep their values, are
written without being counted (`tensor.data`).
"""

import torch
import torch.distributed as dist

from ddprun.elastic.transfer import version_of

_ALIGNMENT = 16  # of any dtype
_PACKED_BYTES_MAX = 16 << 20  # larger packs are not kept from one step to the next


class Buffers:
    def __init__(self, module, ignored=()):
        """ignored: names of buffers that equalize() leaves as they are."""
        self._owners = [one._buffers for one in module.modules()]
        self._ignored = {(id(one._buffers), name) for prefix, one in module.named_modules() for name in one._buffers
                         if f"{prefix}.{name}".lstrip(".") in ignored}
        self._modules = list(module.modules())
        # Statistics of a normalization: passes that change them don't read them again.
        self._unread = {id(one._buffers) for one in self._modules if isinstance(one, torch.nn.modules.batchnorm._NormBase)}
        self._of, self._copies = [], []        # what keep() has copied, and the copies
        self._versions = {}                    # of what keep() has copied: {id: version}
        self._packed_of, self._packs = [], []  # what equalize() sends, and [(a device's bytes, places in them, tensors)]

    def tensors(self):
        return [tensor for owner in self._owners for tensor in owner.values() if tensor is not None]

    def unsaved(self):
        """Those that state_dict() leaves out."""
        return [owner[name] for owner, name in self._unsaved_places()]

    def put_unsaved(self, values):
        """values: unsaved() of a peer."""
        _put(self._unsaved_places(), values)

    def copies(self):
        return [tensor.detach().clone() for tensor in self.tensors()]

    def put(self, values):
        """values: copies(), or those of a peer."""
        _put([(owner, name) for owner in self._owners for name, tensor in owner.items() if tensor is not None], values, self._unread)

    def keep(self):
        """Keeps copies of all."""
        tensors = self.tensors()
        if not _are_same(tensors, self._of):
            self._of, self._copies = tensors, [tensor.detach().clone() for tensor in tensors]
        elif tensors:
            torch._foreach_copy_(self._copies, tensors)
        self._versions = {id(tensor): version_of(tensor) for owner in self._owners if id(owner) not in self._unread
                          for tensor in owner.values() if tensor is not None}

    def kept(self):
        """The copies that keep() has made."""
        return self._copies

    def equalize(self, group):
        """Copies rank 0's buffers to all ranks of a group, in one message for each device. A collective."""
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
                    torch._foreach_copy_([one.data if id(one) in unread or self._versions.get(id(one)) == version_of(one) else one
                                          for one in own], places)

    def _unsaved_places(self):
        return [(module._buffers, name) for module in self._modules for name in sorted(module._non_persistent_buffers_set)
                if module._buffers.get(name) is not None]


def _put(places, values, unread=()):
    with torch.no_grad():
        for (owner, name), value in zip(places, values):
            if id(owner) in unread and owner[name].shape == value.shape:
                owner[name].data.copy_(value)
            elif owner[name].shape == value.shape:
                if not torch.equal(owner[name], value):
                    owner[name].copy_(value)
            else:
                owner[name] = value.to(owner[name].device, copy=True)


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
