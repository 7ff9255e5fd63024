"""torchft, each worker a replica group, as in its train_ddp.py: a broken batch is dropped, a newcomer gets a peer's state."""

import os

import torch
from torch.utils.data import DataLoader

from common import BATCH, STEPS, Data, Journal, network
from torchft import DistributedSampler, Manager, Optimizer, ProcessGroupGloo, ddp

replica, replicas = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
data = Data()
sampler = DistributedSampler(data, replica_rank=replica, num_replica_groups=replicas, group_rank=0, num_replicas=1, seed=1)
loader = DataLoader(data, BATCH // replicas, sampler=sampler)
module = network()


def load_state_dict(state):
    module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def state_dict():
    return {"model": module.state_dict(), "optimizer": optimizer.state_dict()}


manager = Manager(pg=ProcessGroupGloo(), min_replica_size=1, load_state_dict=load_state_dict, state_dict=state_dict,
                  replica_id=f"replica_{replica}")
model = getattr(ddp, os.environ["TORCHFT_DDP"])(manager, module)
optimizer = Optimizer(manager, torch.optim.AdamW(model.parameters(), lr=1e-3))
journal = Journal(replica)
epoch = 0

while manager.current_step() < STEPS:
    sampler.set_epoch(epoch)
    for samples, inputs in loader:
        journal.begin(samples)
        before = manager.current_step()  # for the journal
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        if manager.current_step() > before:  # for the journal
            journal.done(manager.current_step(), manager.num_participants(), model)
        if manager.current_step() >= STEPS:
            break
    epoch += 1
journal.end(manager.current_step(), model)
manager.shutdown()
