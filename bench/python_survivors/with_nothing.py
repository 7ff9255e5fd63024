"""Plain DDP: the script from which the others' lines are counted. A failure loses all."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from common import BATCH, STEPS, Data, Journal, network

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = Data()
sampler = DistributedSampler(data, world, rank, seed=1)
loader = DataLoader(data, BATCH // world, sampler=sampler)
journal = Journal(rank)
step = epoch = 0

while step < STEPS:
    sampler.set_epoch(epoch)
    for samples, inputs in loader:
        journal.begin(samples)
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        journal.done(step, world, model)
        if step == STEPS:
            break
    epoch += 1
journal.end(step, model)
dist.barrier()
