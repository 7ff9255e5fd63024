"""NVRx's in-process restart: survivors call the function again, and load the newest checkpoint; a spare takes the lost rank."""

import os
from typing import Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from common import BATCH, CHECKPOINT, EVERY, STEPS, Data, Journal, network
from nvidia_resiliency_ext import inprocess

PORT = int(os.environ["MASTER_PORT"])


@inprocess.Wrapper(store_kwargs={"port": PORT + 1},
                   rank_assignment=inprocess.Compose(inprocess.rank_assignment.MaxActiveWorldSize(int(os.environ["ACTIVE"])),
                                                     inprocess.rank_assignment.ShiftRanks()))
def train(call_wrapper: Optional[inprocess.CallWrapper] = None):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore(str(call_wrapper.iteration), base_store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
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
    dist.destroy_process_group()


if __name__ == "__main__":
    base_store = dist.TCPStore("127.0.0.1", PORT, is_master=os.environ["RANK"] == "0", multi_tenant=True, wait_for_workers=False)
    train()
