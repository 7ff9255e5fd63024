"""ddprun's Session (docs/ELASTIC.md)."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from common import BATCH, STEPS, Data, Journal, network
from ddprun import elastic

elastic.init_process_group("gloo")
model = DistributedDataParallel(network())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = Data()
sampler = elastic.ElasticSampler(data, global_batch=BATCH, seed=1)
loader = DataLoader(data, batch_sampler=sampler)
session = elastic.Session(model, optimizer, sampler=sampler)
journal = Journal(dist.get_rank())

while session.step_number < STEPS:
    for samples, inputs in session.batches(loader):
        journal.begin(samples)
        before = session.step_number  # for the journal
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if session.step_number > before:  # for the journal
            journal.done(session.step_number, dist.get_world_size(), model)
        if session.step_number == STEPS:
            break
journal.end(session.step_number, model)
dist.barrier()
