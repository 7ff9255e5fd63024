"""A plain DDP loop over gloo, as a user writes it, for ddprun and for torchrun.

plain_ddp.py JOURNAL STEPS CHECKPOINT EVERY [mark]: so many steps of 50 ms. Rank 0 saves to the file CHECKPOINT after
every EVERY-th step (0: never), and all resume from there. With "mark" each rank marks its steps and checkpoints
(docs/PROGRESS.md). Journal lines of rank 0: "begin" (the step that it resumes after), "step", "final".
"""

import mmap
import os
import select
import struct
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "support"))

from worker import write_line  # noqa: E402

JOURNAL, STEPS, CHECKPOINT, EVERY = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
TRAIN, SAVE = 2, 3
PAGE = None
if "mark" in sys.argv[5:] and "DDPRUN_PROGRESS" in os.environ:
    with open(os.environ["DDPRUN_PROGRESS"], "r+b") as source:
        PAGE = mmap.mmap(source.fileno(), 4096)


def mark(phase, step):
    if PAGE is not None:
        struct.pack_into("=Q", PAGE, 64, phase << 56 | step)


dist.init_process_group("gloo")
RANK = dist.get_rank()


def tell(event, **fields):
    if RANK == 0:
        write_line(JOURNAL, event, **fields)


torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun = torch.zeros(1, dtype=torch.int64)
if RANK == 0 and os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT, weights_only=True)
    model.module.load_state_dict(saved["model"])
    begun[0] = saved["step"]
dist.broadcast(begun, 0)
tell("begin", step=int(begun), world=dist.get_world_size())
for step in range(int(begun) + 1, STEPS + 1):
    mark(TRAIN, step)
    select.select([], [], [], 0.05)  # the work of a step
    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    tell("step", step=step)
    if EVERY and step % EVERY == 0:
        mark(SAVE, step)
        select.select([], [], [], 0.2)  # a checkpoint of a model that is worth one takes longer
        if RANK == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, CHECKPOINT + ".partial")
            os.rename(CHECKPOINT + ".partial", CHECKPOINT)
dist.barrier()
tell("final")
dist.destroy_process_group()
