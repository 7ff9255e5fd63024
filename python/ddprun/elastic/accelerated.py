"""What Accelerate's objects need in a Session's loop. Accelerate isn't imported here."""

import sys

from ddprun.elastic import seeds


def adapt(loader, sampler, seed):
    """Has a loader that Accelerate has prepared read the session's sampler without dividing its batches once more.

    seed: called with (epoch, place in the epoch, purpose). Such a loader reads one batch ahead, so the generators are set before
    each batch's place, instead of before each call. Loaders of torch's stay as they are.
    """
    if not hasattr(loader, "gradient_state"):
        return
    shard = getattr(loader, "batch_sampler", None)
    if type(loader).__name__ == "DataLoaderDispatcher" or sampler not in (shard, getattr(shard, "batch_sampler", None)):
        raise TypeError("elastic.Session reads a loader that Accelerate has prepared only if its batch_sampler is the Session's sampler, "
                        "and without dispatch_batches")
    loader.rng_types = None  # a collective at each epoch's beginning, for samplers that draw anew
    if shard is sampler or getattr(shard, "is_adapted", False):
        return
    shard.num_processes, shard.process_index = 1, 0
    kind = type(shard)

    class Whole(kind):
        is_adapted = True

        def __iter__(self):
            for batch in kind.__iter__(self):
                seed(*sampler.dealt, seeds.READING)
                yield batch
    Whole.__name__, Whole.__qualname__ = kind.__name__, kind.__qualname__
    shard.__class__ = Whole


def reads_here(loader):
    """Whether reading a batch draws random numbers in this process, just before it is trained on: in none of the loader's, and not
    ahead."""
    return not hasattr(loader, "gradient_state") and not getattr(loader, "num_workers", 0)


class Ends:
    """Whether a batch is the loader's last one, by which Accelerate ends an accumulation of gradients. Accelerate reads the
    loader's end_of_dataloader, which describes the newest batch even when the Session repeats an older one."""

    def __init__(self, loader):
        self._loader = loader if hasattr(loader, "end_of_dataloader") else None
        self._was_last = False

    def read(self):
        """A batch was read."""
        if self._loader is not None:
            self._was_last = self._loader.end_of_dataloader

    def again(self, is_newest):
        """A batch comes again; whether it is the newest one that was read."""
        if self._loader is not None:
            self._loader.end_of_dataloader = self._was_last and is_newest


def follow(rank, size):
    """Gives Accelerate this process' new place: its schedulers step as often as there are processes."""
    module = sys.modules.get("accelerate.state")
    for kind in (module.PartialState, module.AcceleratorState) if module else ():
        if "num_processes" in kind._shared_state:
            kind._shared_state.update(process_index=rank, num_processes=size)
