"""The network and the data of ddp_probe.cc in plain torch DDP: FILE MODE...; writes FILE.MODE.RANK."""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

OPTIONS = {
    "bucket": {"bucket_cap_mb": 0.005},
    "view_bucket": {"bucket_cap_mb": 0.005, "gradient_as_bucket_view": True},
    "view": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
    "no_buffers": {"broadcast_buffers": False},
    "tied_view_bucket": {"bucket_cap_mb": 0.005, "gradient_as_bucket_view": True},
    "join_unused": {"find_unused_parameters": True},
}

HOOKS = {
    "allreduce": lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
    "fp16": lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS),
    "bf16": lambda ddp: ddp.register_comm_hook(None, default_hooks.bf16_compress_hook),
}


class Network(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.a = nn.Linear(20, 64)
        self.norm = nn.BatchNorm1d(64)
        self.b = nn.Linear(64, 64)
        self.extra = self.b if tied else nn.Linear(64, 64)
        self.c = nn.Linear(64, 10)

    def forward(self, x, use_extra):
        x = F.relu(self.norm(self.a(x)))
        x = F.relu(self.b(x))
        if use_extra:
            x = x + self.extra(x)
        return self.c(x)


def train_scaled(network, ddp):
    body = torch.optim.SGD([p for name, p in network.named_parameters() if name[0] != "c"], lr=0.05, momentum=0.9)
    head = torch.optim.SGD([p for name, p in network.named_parameters() if name[0] == "c"], lr=0.03)
    scaler = torch.amp.GradScaler("cpu", init_scale=1000, growth_factor=1.7, backoff_factor=0.3, growth_interval=3)
    for number in range(20):
        ddp.zero_grad()
        x = torch.randn(16, 20)
        y = torch.randint(10, (16,))
        scaler.scale(F.cross_entropy(ddp(x, True), y)).backward()
        if number % 5 == 4:
            (network.a if number % 2 == 0 else network.c).bias.grad[0] = float("inf")
        if number % 3 == 0:
            scaler.unscale_(head)
        scaler.step(body)
        scaler.step(head)
        scaler.update()


def train(mode, rank):
    torch.manual_seed(7 if rank == 0 else 99)
    network = Network("tied" in mode)
    ddp = DistributedDataParallel(network, **OPTIONS.get(mode, {}))
    HOOKS.get(mode, lambda ddp: None)(ddp)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1000 + rank)
    if mode == "scaler":
        train_scaled(network, ddp)
        return network

    def step(use_extra):
        x = torch.randn(16, 20)
        y = torch.randint(10, (16,))
        F.cross_entropy(ddp(x, use_extra), y).backward()

    uneven = mode.startswith("join")
    with ddp.join(mode != "join_active") if uneven else contextlib.nullcontext():
        for number in range(13 if uneven and rank == 1 else 20):
            optimizer.zero_grad()
            if mode == "no_sync":
                with ddp.no_sync():
                    step(True)
            step(not mode.endswith("unused") or (rank + number) % 3 == 0)
            optimizer.step()
    return network


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for mode in sys.argv[2:]:
        network = train(mode, rank)
        with open(f"{sys.argv[1]}.{mode}.{rank}", "wb") as file:
            for tensor in list(network.parameters()) + list(network.buffers()):
                file.write(tensor.detach().float().contiguous().numpy().tobytes())
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # torch 2.11 aborts now and then when it ends while gloo's threads run


if __name__ == "__main__":
    main()
