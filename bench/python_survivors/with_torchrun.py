"""torchrun restarts all processes from the newest checkpoint; the place in the data is found by counting."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from common import BATCH, CHECKPOINT, EVERY, STEPS, Data, Journal, network

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = Data()
sampler = DistributedSampler(data, world, rank, seed=1)
loader = DataLoader(data, BATCH // world, sampler=sampler)
journal = Journal(rank)
step = 0
if os.path.exists(CHECKPOINT):
    state = torch.load(CHECKPOINT)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
epoch, skip = divmod(step, len(loader))

while step < STEPS:
    sampler.set_epoch(epoch)
    for number, (samples, inputs) in enumerate(loader):
        if number < skip:
            continue
        journal.begin(samples)
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        journal.done(step, world, model)
        if step % EVERY == 0 and rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
        if step == STEPS:
            break
    epoch, skip = epoch + 1, 0
journal.end(step, model)
dist.barrier()
