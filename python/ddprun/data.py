"""Deals each sample exactly once an epoch, whatever happens to the ranks (docs/DATA.md). Only the standard library.

    from ddprun.data import ElasticSampler

    sampler = ElasticSampler(dataset, global_batch=256)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, num_workers=4)
    sampler.load_state_dict(checkpoint["sampler"])  # where there is one
    while sampler.epoch < epochs:
        for batch in loader:      # this rank's share of each step, to the end of the epoch
            train(batch)
            sampler.commit()      # the step is done; what the loader has read ahead isn't
            save({"sampler": sampler.state_dict()})
"""

import collections
import math
import os
import re
import warnings

__all__ = ["ElasticSampler", "KeyedPermutation", "Step", "collate"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_EPOCH_SALT = 0x5851F42D4C957F2D
_SMALL_SIZE = 65536
_SIZE_MAX = 1 << 62
_EPOCH_MAX = 1 << 62
_BATCH_MAX = (1 << 31) - 1
_VERSION = 1
# Fewer places than this are computed faster one by one.
_FEW = 16
_NUMBER = r"(0|[1-9]\d{0,19})"
_TEXT = re.compile(r"dataset_size=N seed=N shuffle=([01]) epoch=N consumed=N".replace("N", _NUMBER), re.ASCII)


def _mix(z):
    """SplitMix64's output function."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class KeyedPermutation:
    """A random-looking order of 0 to size - 1 without a table; the same numbers as C++'s ddprun::KeyedPermutation."""

    def __init__(self, size, seed, epoch):
        if not 1 <= size <= _SIZE_MAX:
            raise ValueError(f"a permutation has 1 to 2**62 numbers, not {size}")
        self.size = size
        high = math.isqrt(size - 1) + 1
        self._high = high + high % 2
        self._low = -(-size // self._high)
        key = _mix(_mix((seed + _GOLDEN) & _MASK) ^ _mix(((epoch + 1) * _GOLDEN + _EPOCH_SALT) & _MASK))
        rounds = 24 if size < _SMALL_SIZE else 12
        self._keys = [_mix((key + (i + 1) * _GOLDEN) & _MASK) for i in range(rounds)]

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        """The number at a place."""
        if not 0 <= place < self.size:
            raise IndexError(f"place {place} of {self.size}")
        number = self._forward(place)
        while number >= self.size:
            number = self._forward(number)
        return number

    def _forward(self, value):
        high, low = divmod(value, self._low)
        for i in range(0, len(self._keys), 2):
            high += ((_mix((self._keys[i] + low * _GOLDEN) & _MASK) >> 32) * self._high) >> 32
            if high >= self._high:
                high -= self._high
            low += ((_mix((self._keys[i + 1] + high * _GOLDEN) & _MASK) >> 32) * self._low) >> 32
            if low >= self._low:
                low -= self._low
        return high * self._low + low

    def slice(self, begin, end):
        """The numbers at places begin to end - 1, as a list; with numpy, where it is there, many at once."""
        numpy = _numpy() if end - begin >= _FEW else None
        if numpy is None:
            return [self[place] for place in range(begin, end)]
        with numpy.errstate(over="ignore"):
            numbers = self._forward_many(numpy, numpy.arange(begin, end, dtype=numpy.uint64))
            while True:
                beyond = numpy.nonzero(numbers >= numpy.uint64(self.size))[0]
                if not beyond.size:
                    return numbers.tolist()
                numbers[beyond] = self._forward_many(numpy, numbers[beyond])

    def _forward_many(self, numpy, values):
        word = numpy.uint64
        highs, lows = word(self._high), word(self._low)

        def turned(half, other, key, bound):
            z = word(key) + other * word(_GOLDEN)
            z = (z ^ (z >> word(30))) * word(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> word(27))) * word(0x94D049BB133111EB)
            z ^= z >> word(31)
            half = half + (((z >> word(32)) * bound) >> word(32))
            half[half >= bound] -= bound
            return half

        high, low = values // lows, values % lows
        for i in range(0, len(self._keys), 2):
            high = turned(high, low, self._keys[i], highs)
            low = turned(low, high, self._keys[i + 1], lows)
        return high * lows + low


def _numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy


class Step(collections.namedtuple("Step", "epoch first global_count count weight last_of_epoch")):
    """A training step's samples.

    first: the place of the step's first sample in the epoch's order. count: how many of the global_count this rank has.
    weight: of this rank's mean loss, so that the mean of all ranks' gradients is that of all samples.
    """

    __slots__ = ()


class ElasticSampler:
    """Deals the samples of a data set to ranks that come and go, each exactly once an epoch.

    A batch sampler: an iteration gives this rank's indices of each step, from the last committed step to the end of the
    epoch; a list is empty if ranks outnumber what is left. All ranks must make the same calls. Threads: one.

    data: a data set, or how many samples it has. global_batch: samples of a step over all ranks, whatever their number;
    or batch_per_rank: a step has world_size times that. rank, world_size: by default the launcher's RANK and WORLD_SIZE.
    """

    def __init__(self, data, *, global_batch=None, batch_per_rank=None, seed=0, shuffle=True, rank=None, world_size=None):
        self._size = _size_of(data)
        if (global_batch is None) == (batch_per_rank is None):
            raise ValueError("a sampler needs either global_batch or batch_per_rank; "
                             f"global_batch is {global_batch}, batch_per_rank {batch_per_rank}")
        batch = batch_per_rank if global_batch is None else global_batch
        if not 1 <= batch <= _BATCH_MAX:
            raise ValueError(f"a batch has 1 to {_BATCH_MAX} samples, not {batch}")
        self._global_batch, self._batch_per_rank = global_batch, batch_per_rank
        self._shuffle = bool(shuffle)
        self._seed, self._epoch, self._consumed = seed, 0, 0
        _check_state(self._size, seed, 0, 0)
        self._deal = 0
        self.reform(int(os.environ.get("RANK", 0)) if rank is None else rank,
                    int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size)

    @property
    def epoch(self):
        """The epoch of the next step to commit."""
        return self._epoch

    @property
    def consumed(self):
        """How many samples of the epoch are committed."""
        return self._consumed

    @property
    def dealt(self):
        """(epoch, sample of it) up to where samples were dealt, committed or not."""
        return self._dealt

    @property
    def deals(self):
        """How many times samples were dealt anew: an iteration that began before the last time has ended."""
        return self._deal

    def number_at(self, consumed):
        """The number in its epoch of the step that begins at a sample, from 0."""
        return consumed // self._batch()

    @property
    def rank(self):
        return self._rank

    @property
    def world_size(self):
        return self._world_size

    def reform(self, rank, world_size):
        """Goes on from the last committed step with another rank and number of ranks; running iterations end with an error.

        Begin a new one: what the loader has read ahead is dealt anew.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"a sampler's rank is {rank}, and must be below the world size, {world_size}")
        self._rank, self._world_size = rank, world_size
        self._deal_anew()

    def set_epoch(self, epoch):
        """Goes to the beginning of an epoch; does nothing within that epoch, as after load_state_dict()."""
        if epoch != self._epoch:
            _check_state(self._size, self._seed, epoch, 0)
            self._epoch, self._consumed = epoch, 0
            self._deal_anew()

    def step(self, ahead=0):
        """The Step that commit() would commit: the one that is being trained; or one of the epoch's `ahead` steps later."""
        first = self._consumed + ahead * self._batch()
        if ahead < 0 or first >= self._size:
            raise ValueError(f"no step of epoch {self._epoch} is {ahead} after the one at sample {self._consumed} of {self._size}")
        count = self._count_at(first)
        mine = self._slice(count)[1]
        return Step(self._epoch, first, count, mine, mine * self._world_size / count, first + count == self._size)

    def commit(self):
        """Call it when the step is done on all ranks: its samples count as consumed."""
        if (self._epoch, self._consumed) >= self._dealt:
            raise RuntimeError(f"commit() without a step: that at sample {self._consumed} of epoch {self._epoch} was not "
                               "dealt since the last reform(), load_state_dict() or commit(); call it once after each batch")
        self._consumed += self._count_at(self._consumed)
        if self._consumed == self._size:
            self._epoch, self._consumed = self._epoch + 1, 0

    def state_dict(self):
        """The committed state as plain numbers: all that a checkpoint needs, the same on all ranks and at any world size."""
        return {"version": _VERSION, "dataset_size": self._size, "seed": self._seed, "shuffle": self._shuffle,
                "epoch": self._epoch, "consumed": self._consumed}

    def load_state_dict(self, state):
        """Goes on from a state_dict(), or from the text of state_text() or C++'s SamplerState, with its seed."""
        if isinstance(state, (str, bytes)):
            state = _parse(state)
        try:
            version, size, seed, shuffle, epoch, consumed = (state[key] for key in (
                "version", "dataset_size", "seed", "shuffle", "epoch", "consumed"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{state!r:.120} is no state of a sampler: {error!r}") from None
        if version != _VERSION:
            raise ValueError(f"a sampler's state is of version {version!r}, and this ddprun reads version {_VERSION}: resume "
                             "with the ddprun that wrote it")
        _check_state(size, seed, epoch, consumed)
        if size != self._size:
            raise ValueError(f"the state is of a data set of {size} samples, and this one has {self._size}: which samples were "
                             "learned from would no longer be known; resume with the same data, or begin an epoch of the new "
                             "data with a new sampler")
        if bool(shuffle) != self._shuffle:
            raise ValueError(f"the state is of a sampler with shuffle={bool(shuffle)}, and this one has {self._shuffle}: the "
                             "order would be another one; resume with the same option")
        self._seed, self._epoch, self._consumed = seed, epoch, consumed
        self._deal_anew()

    def state_text(self):
        """state_dict() as one line, as C++'s SamplerState::Serialize() gives it."""
        return (f"ddprun-sampler {_VERSION} dataset_size={self._size} seed={self._seed} shuffle={int(self._shuffle)} "
                f"epoch={self._epoch} consumed={self._consumed}")

    def __len__(self):
        """Steps of the newest iteration, however many of them are committed; before the first one, those to the end of the epoch."""
        return self._length or self._left()

    def _left(self):
        """Steps from the last committed one to the end of the epoch."""
        return -(-(self._size - self._consumed) // self._batch())

    def __iter__(self):
        self._length = self._left()
        if self._ended == (self._deal, self._epoch, self._consumed):
            warnings.warn(f"epoch {self._epoch} was dealt to its end from sample {self._consumed} on, and is dealt again: "
                          "nothing was committed; call commit() after each step", stacklevel=2)
        return self._shares()

    def _shares(self):
        deal, epoch, first = self._deal, self._epoch, self._consumed
        began = (deal, epoch, first)
        order = KeyedPermutation(self._size, self._seed, epoch)
        while first < self._size:
            if deal != self._deal:
                raise RuntimeError("the sampler's ranks or state have changed: begin a new iteration, in which the samples that "
                                   "aren't committed are dealt anew")
            count = self._count_at(first)
            offset, mine = self._slice(count)
            begin = first + offset
            first += count
            self._dealt = max(self._dealt, (epoch, first))
            yield order.slice(begin, begin + mine) if self._shuffle else list(range(begin, begin + mine))
        self._ended = began

    def _batch(self):
        return self._global_batch or self._batch_per_rank * self._world_size

    def _count_at(self, consumed):
        return min(self._batch(), self._size - consumed)

    def _slice(self, count):
        """(where this rank's slice of a step's `count` samples begins, how many it has)."""
        base, more = divmod(count, self._world_size)
        return base * self._rank + min(self._rank, more), base + (self._rank < more)

    def _deal_anew(self):
        self._deal += 1
        self._dealt = (self._epoch, self._consumed)  # up to here samples were dealt
        self._ended = None  # where an iteration began that came to the epoch's end
        self._length = 0    # steps of the newest iteration; 0 = none has begun


def _size_of(data):
    if isinstance(data, int):
        return data
    try:
        return len(data)
    except TypeError:
        raise ValueError(f"a sampler needs a data set with a length, or the number of its samples, not {type(data).__name__}: "
                         "a stream of unknown length can't be divided among the ranks") from None


def _check_state(size, seed, epoch, consumed):
    for name, value in (("dataset_size", size), ("seed", seed), ("epoch", epoch), ("consumed", consumed)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"a sampler's {name} is a whole number, not {value!r}")
    if not 1 <= size <= _SIZE_MAX:
        raise ValueError(f"a sampler needs a data set of 1 to 2**62 samples; dataset_size is {size}")
    if not 0 <= seed <= _MASK:
        raise ValueError(f"a sampler's seed is 0 to 2**64 - 1, not {seed}")
    if not 0 <= epoch <= _EPOCH_MAX:
        raise ValueError(f"a sampler's epoch is 0 to 2**62, not {epoch}")
    if not 0 <= consumed < size:
        raise ValueError(f"a sampler's state has consumed {consumed} of the {size} samples of epoch {epoch}; it must be fewer: "
                         "the state is damaged, or of another data set")


def _parse(text):
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    form, version, *rest = [*text.split(" ", 2), "", ""][:3]
    match = _TEXT.fullmatch(rest[0])
    if form != "ddprun-sampler" or not version or (version == str(_VERSION) and not match):
        raise ValueError(f"{text[:120]!r} is no state of a sampler: it must be as state_text() gives it")
    if version != str(_VERSION):
        return {"version": version[:20], **dict.fromkeys(("dataset_size", "seed", "shuffle", "epoch", "consumed"))}
    size, seed, shuffle, epoch, consumed = map(int, match.groups())
    return {"version": _VERSION, "dataset_size": size, "seed": seed, "shuffle": bool(shuffle), "epoch": epoch,
            "consumed": consumed}


def collate(samples, collate_fn=None):
    """A collate_fn that gives None for a step in which this rank has no samples, where torch's own fails."""
    if not samples:
        return None
    if collate_fn is None:
        from torch.utils.data import default_collate as collate_fn
    return collate_fn(samples)
