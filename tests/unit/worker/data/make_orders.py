#!/usr/bin/env python3
"""Writes orders.txt and deals.txt beside itself: what C++ and Python are held to.

A change of a line is a change of every run that resumes in the middle of an epoch.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "..", "python"))

from ddprun.data import ElasticSampler, KeyedPermutation  # noqa: E402

SIZES = (1, 2, 3, 5, 7, 8, 9, 10, 100, 1000, 65535, 65536, 65537, 10**6, 2**31, 2**32 + 1, 10**12, 2**53 + 1, 2**62)
KEYS = ((0, 0), (0, 1), (1, 0), (42, 7), (2**64 - 1, 2**62))
# (samples, global batch, batch per rank)
JOBS = ((23, 6, 0), (23, 0, 3), (10, 16, 0), (10**12, 7, 0), (10**12, 0, 2))


def orders():
    yield "# size seed epoch: the first numbers of that order (at most 8), then its last one. Made by make_orders.py."
    for size in SIZES:
        for seed, epoch in KEYS:
            order = KeyedPermutation(size, seed, epoch)
            numbers = [order[place] for place in range(min(8, size))] + [order[size - 1]]
            yield f"{size} {seed} {epoch}: {' '.join(map(str, numbers))}"


def deals():
    yield "# size seed global_batch batch_per_rank shuffle rank world_size epoch consumed: the rank's samples of the step there"
    yield "# and of the one after it, with how many the step has over all ranks before them. Made by make_orders.py."
    for size, global_batch, batch_per_rank in JOBS:
        for rank, world, epoch, consumed, shuffle in ((0, 1, 0, 0, 1), (0, 2, 0, size - 5, 1), (1, 3, 4, size // 2, 1),
                                                      (4, 6, 9, size - 3, 1), (2, 4, 1, 1, 0)):
            sampler = ElasticSampler(size, global_batch=global_batch or None, batch_per_rank=batch_per_rank or None, seed=11,
                                     shuffle=bool(shuffle), rank=rank, world_size=world)
            sampler.load_state_dict({**sampler.state_dict(), "epoch": epoch, "consumed": consumed})
            steps = []
            for _ in range(2):
                indices = next(iter(sampler))
                steps.append(" ".join(map(str, (sampler.step().global_count, *indices))))
                sampler.commit()
            yield f"{size} 11 {global_batch} {batch_per_rank} {shuffle} {rank} {world} {epoch} {consumed}: {' | '.join(steps)}"


FILES = {"orders.txt": orders, "deals.txt": deals}


def text(name):
    return "".join(line + "\n" for line in FILES[name]())


if __name__ == "__main__":
    for file in FILES:
        with open(os.path.join(HERE, file), "w", encoding="utf-8") as sink:
            sink.write(text(file))
