#!/usr/bin/env python3
"""A training under DDP whose model learns how often it has seen each sample: counting_worker.py JOURNAL FOLDER KIND

Rank 0 saves model and sampler in FOLDER after each step; a start goes on from there, at whatever world size. KIND
`elastic` reads by ddprun's sampler, `distributed` by torch's as people write it: at a restart it skips the batches that were
trained.

What a test writes into FOLDER is done in the middle of an epoch, with a step half done. `strike` with "RANK PID": that rank kills
PID (0: itself); with "RANK hold" it waits for its end. `finish`: all end with the epoch. Written down are each rank's start, and
at the end what each epoch's samples came to.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from worker import write_line

from ddprun.data import ElasticSampler, collate

SIZE, BATCH, STRIKE_AT = 301, 4, 7
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Samples(Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index


class Model(torch.nn.Module):
    """The model's gradient is how often each sample is in the batch, divided by the batch's size."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(SIZE))

    def forward(self, batch):
        return self.weights[batch].mean()


class Elastic:
    def __init__(self, state):
        self.sampler = ElasticSampler(SIZE, batch_per_rank=BATCH, seed=5)
        self.loader = DataLoader(Samples(), batch_sampler=self.sampler, num_workers=1, collate_fn=collate)
        if state is not None:
            self.sampler.load_state_dict(state)

    def __iter__(self):
        """(the batch, its weight, how many samples all ranks have, whether it is the epoch's last)"""
        while True:
            for batch in self.loader:
                step = self.sampler.step()
                # A rank without samples takes part in the sums with one that doesn't count.
                yield torch.tensor([0]) if batch is None else batch, step.weight, step.global_count, step.last_of_epoch

    def committed(self):
        self.sampler.commit()
        return self.sampler.state_dict()


class Distributed:
    def __init__(self, state):
        self.sampler = DistributedSampler(Samples(), WORLD, RANK, seed=5)
        self.loader = DataLoader(Samples(), batch_size=BATCH, sampler=self.sampler, num_workers=1)
        self.epoch, self.done = state or (0, 0)

    def __iter__(self):
        while True:
            self.sampler.set_epoch(self.epoch)
            for number, batch in enumerate(self.loader):
                if number >= self.done:
                    yield batch, 1, len(batch) * WORLD, number == len(self.loader) - 1
            if self.done >= len(self.loader):  # another world size: all batches count as trained
                self.epoch, self.done = self.epoch + 1, 0

    def committed(self):
        self.done += 1
        if self.done == len(self.loader):
            self.epoch, self.done = self.epoch + 1, 0
        return self.epoch, self.done


def strike(journal, folder, step):
    """What the test has asked for, once."""
    path = os.path.join(folder, "strike")
    if step != STRIKE_AT or not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as source:
        rank, what = source.read().split()
    if int(rank) != RANK:
        return
    os.unlink(path)
    if what == "hold":
        write_line(journal, "held", rank=RANK, world=WORLD)
        signal.pause()
    os.kill(int(what) or os.getpid(), signal.SIGKILL)
    signal.pause()  # until this rank is ended, too: on a busy machine the epoch would be over before


def main():
    journal, folder, kind = sys.argv[1:]
    saved = os.path.join(folder, "checkpoint.pt")
    counts, history, state = torch.zeros(SIZE), [], None
    if os.path.exists(saved):
        counts, history, state = torch.load(saved)
    dist.init_process_group("gloo")
    write_line(journal, "worker", rank=RANK, world=WORLD, generation=int(os.environ["DDPRUN_GENERATION"]), state=state)
    data = {"elastic": Elastic, "distributed": Distributed}[kind](state)
    model = DistributedDataParallel(Model())
    step = 0
    for batch, weight, global_count, last in data:
        strike(journal, folder, step := step + 1)
        model.zero_grad()
        (model(batch) * weight).backward()
        counts += (model.module.weights.grad * global_count).round()
        finish = torch.tensor([float(RANK == 0 and os.path.exists(os.path.join(folder, "finish")))])
        dist.all_reduce(finish)
        state = data.committed()
        if last:
            history.append({"repeated": int((counts > 1).sum()), "lost": int((counts == 0).sum())})
            counts.zero_()
            step = 0
        if RANK == 0:
            torch.save((counts, history, state), saved + ".new")
            os.replace(saved + ".new", saved)
        if last and finish.item():
            break
    write_line(journal, "done", rank=RANK, world=WORLD, epochs=history)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends


if __name__ == "__main__":
    main()
