"""What the scripts of python_survivors_bench.py share, and what no user would have to write: a network, data, a journal."""

import hashlib
import json
import os
import sys
import time

import torch
from torch import nn

JOURNAL, FOLDER, STEPS, BATCH = sys.argv[1], os.path.dirname(sys.argv[1]), int(sys.argv[2]), 12
CHECKPOINT = os.path.join(FOLDER, "checkpoint.pt")
EVERY = 20  # steps between two checkpoints


class Data(torch.utils.data.Dataset):
    """Each sample is with its number."""

    def __init__(self):
        self.values = torch.randn(480, 64, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return index, self.values[index]


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))


class Journal:
    """A line for each step that begins, and one when it is done: the samples, how many workers took part, and a hash of the
    parameters after the step."""

    def __init__(self, rank):
        self._rank, self._began, self._samples = rank, 0.0, []
        self._file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begin(self, samples):
        self._began, self._samples = time.monotonic(), samples.tolist()
        self._write("begin", samples=self._samples)

    def done(self, step, world, model):
        self._write("step", step=step, world=world, began=self._began, samples=self._samples, digest=digest(model))

    def end(self, step, model):
        self._write("end", step=step, digest=digest(model))

    def _write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "event": event, "pid": os.getpid(), "rank": self._rank, **what}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def digest(model):
    whole = hashlib.sha256()
    for parameter in model.parameters():
        whole.update(parameter.detach().numpy().tobytes())
    return whole.hexdigest()[:16]


torch.set_num_threads(1)
