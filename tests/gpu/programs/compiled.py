"""The same few steps in several ways: as they are, compiled, from CUDA graphs, with activations computed twice. For each way a
line of the journal has the losses, and what ddprun's hook had counted on this worker's page before and after it
(docs/PROGRESS.md).
"skip" leaves one step of the optimizer out, and shows what a bound on losses is worth.

compiled.py DEVICE BACKEND JOURNAL WAY…; the CPU has no graphs, there the captured functions are called again.
"""

import json
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS, WARM_UPS = 8, 3
DEVICE, BACKEND, JOURNAL = torch.device(sys.argv[1]), sys.argv[2], sys.argv[3]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def counted():
    """Phase and step of this worker's page; None without ddprun."""
    if "DDPRUN_PROGRESS" not in os.environ:
        return None
    with open(os.environ["DDPRUN_PROGRESS"], "rb") as page:
        word, = struct.unpack("Q", page.read(72)[64:])
    return [word >> 56, word & (1 << 56) - 1]


class Net(torch.nn.Module):
    def __init__(self, twice=False):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.third = torch.nn.Linear(64, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, 1)
        self.twice = twice

    def block(self, x):
        return torch.tanh(self.second(torch.tanh(self.first(x))))

    def forward(self, x):
        return self.third(checkpoint(self.block, x, use_reentrant=False) if self.twice else self.block(x))


def samples(step):
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(1000 * step + RANK))


def loss_of(model, x):
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def average(model):
    """By hand: DDP's hooks are none of a graph's."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD


class Captured:
    """function() as a CUDA graph, after a few warm-up calls; its tensors stay in place. On the CPU, the plain function."""

    def __init__(self, function):
        self.function, self.graph, self.result = function, None, None
        if DEVICE.type != "cuda":
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = function()

    def __call__(self):
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.result


def train(way):
    """Losses of STEPS steps, the optimizer's in each."""
    model = Net(twice=way == "checkpoint").to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=DEVICE.type == "cuda")
    held = torch.zeros(32, 64, device=DEVICE)
    if way in ("graph", "whole_graph"):
        return train_from_a_graph(model, optimizer, held, whole=way == "whole_graph")
    if way == "graphed":
        run = torch.cuda.make_graphed_callables(model, (held,)) if DEVICE.type == "cuda" else model
    else:
        run = DistributedDataParallel(model, device_ids=[DEVICE.index or 0] if DEVICE.type == "cuda" else None)
        if way.startswith("compile:"):
            run = torch.compile(run, backend=way.partition(":")[2])
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(run, samples(step).to(DEVICE))
        loss.backward()
        if way == "graphed":
            average(model)
        if way != "skip" or step != 3:
            optimizer.step()
        losses.append(loss.item())
    return losses


def train_from_a_graph(model, optimizer, held, whole):
    """Forward and backward pass are one graph; with `whole` the optimizer's step is in it, which the host then sees once. What
    warm-ups learn is put back."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def passes():
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model, held)
        loss.backward()
        if whole:
            optimizer.step()
        return loss

    before = {name: value.clone() for name, value in model.state_dict().items()}
    if whole:
        optimizer.step()  # makes the optimizer's state
    replay = Captured(passes)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(before[name])
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    losses = []
    for step in range(STEPS):
        held.copy_(samples(step))
        loss = replay()
        if not whole:
            average(model)
            optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.zeros(1, device=DEVICE)
    dist.init_process_group(BACKEND)
    for way in sys.argv[4:]:
        began, before = time.monotonic(), counted()
        losses = train(way)
        line = {"event": "trained", "t": time.monotonic(), "rank": RANK, "world": WORLD, "way": way, "losses": losses,
                "before": before, "after": counted(), "seconds": time.monotonic() - began}
        with open(JOURNAL, "ab", buffering=0) as sink:
            sink.write((json.dumps(line) + "\n").encode())
    dist.destroy_process_group()


main()
