"""The place in the data of Hugging Face's Trainer, which keeps its own samplers and loaders.

A newcomer goes to the others' place by passing over indices; nothing is read for it. So the order of an epoch must not depend on
a process' past: generators of samplers are seeded by the epoch, and the default generators before each batch's indices are drawn
(alike on all ranks) and before the batch is read (by rank). Processes of a loader draw their own.
"""

import collections
import copy

import torch

ORDER = 3  # purposes of seeds, beside those of seeds.py
READING = 0


def _chain(loader):
    """The loader's batch sampler, and those inside of it."""
    one = getattr(loader, "batch_sampler", None)
    while one is not None:
        yield one
        one = getattr(one, "batch_sampler", None) or getattr(one, "sampler", None)


def why_not(loader):
    """Why a loader's place can't be kept; "" = it can."""
    if isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset):
        return "an IterableDataset (its place in the data isn't known)"
    if type(loader).__name__ == "DataLoaderDispatcher":
        return "dispatch_batches=True"
    if not isinstance(getattr(loader, "batch_sampler", None), collections.abc.Iterable):
        return f"a {type(loader).__name__} without batch_sampler"
    return ""


def seed_generators(loader, seed):
    """Sets the generators of a loader's samplers, which otherwise depend on how often it was read."""
    for one in _chain(loader):
        generator = getattr(one, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def _mark(sampler, reader):
    """Has a batch sampler begin where `reader` says, and seed generators. The object stays, because loaders keep it."""
    kind = type(sampler)

    class Seeded(kind):
        def __iter__(self):
            first, epoch = reader.first, reader.epoch
            reader.seed_order(epoch, 0)
            batches = kind.__iter__(self)
            number = 0
            while True:
                reader.seed_order(epoch, number)
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                number += 1
                if number > first:
                    reader.seed_reading(epoch, number)
                    yield batch
    Seeded.__name__, Seeded.__qualname__ = kind.__name__, kind.__qualname__
    sampler.__class__ = Seeded


class Reader:
    """Reads the training data from any place on. Places are (epoch, batch of the epoch)."""

    def __init__(self, loader, seed):
        """seed: called with (epoch, batch, purpose); sets the default generators."""
        self._loader, self._seed = loader, seed
        self._place, self._iterator = None, None
        self.epoch = self.first = 0
        self._kept, self._kept_place = [], None  # the batches of the step under way
        if getattr(loader, "rng_types", None):
            loader.rng_types = None  # a collective at an epoch's beginning, for what is seeded here
        _mark(loader.batch_sampler, self)

    def step(self, epoch, first):
        """An iterator over the batches of a step, which begins at that place; again and again the same, until another is asked
        for."""
        if self._kept_place == (epoch, first):
            return iter([copy.copy(batch) for batch in self._kept])
        if self._place != (epoch, first):
            self._begin(epoch, first)
        self._kept, self._kept_place = [], (epoch, first)
        return self._read()

    def has(self, epoch, first):
        """Whether the loader is at that place, or has just read its batches."""
        return (epoch, first) in (self._place, self._kept_place)

    def _begin(self, epoch, first):
        self._place, self.epoch, self.first = (epoch, first), epoch, first
        for one in (self._loader, *_chain(self._loader)):
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
        self._seed(epoch, first, READING)  # of this come the seeds of the loader's processes
        self._iterator = iter(self._loader)

    def _read(self):
        for batch in self._iterator:
            self._place = (self._place[0], self._place[1] + 1)
            self._kept.append(copy.copy(batch))
            yield batch

    def seed_order(self, epoch, number):
        seed = self._seed(epoch, number, ORDER)
        if number == 0:
            seed_generators(self._loader, seed)

    def seed_reading(self, epoch, number):
        self._seed(epoch, number, READING)
