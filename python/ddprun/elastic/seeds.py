"""Random numbers that don't depend on a process' past.

Each rank has a seed of its own, known to all ranks: what its generator was seeded with when the Session was made (a program that
seeds all ranks alike has the same numbers on all of them, as before). The generators are set from it before each batch is read,
or before it is trained on if the loader's own processes read. So a step that is done again, or by a new process, draws the same
numbers.

    seed of rank 1: 42
    step 7, batch 0, read in this process:  generators set from mix(42, 7, 0, 0); a step that is done again reads it anew
    step 7, batch 0, read by another one:   generators set from mix(42, 7, 0, 1)
"""

import random
import sys

import torch

from ddprun.data import _mix

_MASK = (1 << 64) - 1
READING, TRAINING = 0, 1


class Seeds:
    def __init__(self, table):
        """table: the seed of each rank."""
        self.table = list(table)

    @staticmethod
    def own():
        return torch.initial_seed() & _MASK

    def extended(self, seeds):
        """Returns the table with the seeds of ranks that it lacks. seeds: one of each rank."""
        return Seeds(self.table + list(seeds[len(self.table):]))

    def set(self, rank, step, batch, purpose):
        """Sets Python's, numpy's (where it is in use), torch's and CUDA's default generators. Returns the seed."""
        seed = _mix(self.table[rank])
        for part in (step, batch, purpose):
            seed = _mix((seed + part + 1) & _MASK)
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            for generator in torch.cuda.default_generators:
                generator.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            numpy.seed(seed & 0xFFFFFFFF)
        return seed
