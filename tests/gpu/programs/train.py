"""Plain DDP, as people write it, on the CPU or on a GPU: saves, resumes, and says in a journal what took how long."""

import argparse
import json
import os
import select
import time

# To _dynamo, which DDP would import later, for as long as torch itself takes.
STARTED = time.monotonic()

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  pylint: disable=unused-import
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from held import had_cuda  # noqa: E402

IMPORTED = time.monotonic()
LARGE = 4096  # a product of two such matrices takes a GPU 1 to 5 ms


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps")
    parser.add_argument("--checkpoint", help="saved after each step, and resumed from")
    parser.add_argument("--hold_mib", type=int, default=0, help="of the device's memory, all the time")
    parser.add_argument("--products", type=int, default=0, help="of large matrices before each step: the GPU is busy")
    return parser.parse_args()


class Journal:
    def __init__(self, path, rank):
        self.path = path
        self.common = {"pid": os.getpid(), "who": "worker", "rank": rank, "world": int(os.environ["WORLD_SIZE"]),
                       "generation": int(os.environ.get("DDPRUN_GENERATION", 1))}

    def say(self, event, **fields):
        line = {"t": time.monotonic(), "event": event, **self.common, **fields}
        with open(self.path, "a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")


def main():
    arguments = parse_arguments()
    rank = int(os.environ["RANK"])
    journal = Journal(arguments.journal, rank)
    device = torch.device(arguments.device)
    before = had_cuda(torch)
    began = time.monotonic()
    torch.zeros(1, device=device).item()
    context = time.monotonic()
    dist.init_process_group(arguments.backend)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    group = time.monotonic()
    held = torch.zeros(arguments.hold_mib << 20, dtype=torch.uint8, device=device)
    size = LARGE if arguments.products and device.type == "cuda" else 1
    large = torch.full((size, size), 1 / size, device=device)
    first = 0
    if arguments.checkpoint and os.path.exists(arguments.checkpoint):
        state = torch.load(arguments.checkpoint, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    journal.say("begun", imports=IMPORTED - STARTED, context=context - began, group=group - context,
                state=time.monotonic() - group, device=str(next(model.parameters()).device), backend=dist.get_backend(),
                had_cuda=before, held=held.nbytes)
    for step in range(first, arguments.steps):
        draw = torch.Generator().manual_seed(1000 * step + rank)
        samples = torch.randn(32, 64, generator=draw)
        for _ in range(arguments.products):
            large = large @ large
        loss = (model(samples.to(device)) - samples.sum(1, keepdim=True).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.say("step", step=step + 1, loss=loss.item())
        if arguments.checkpoint and rank == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                       arguments.checkpoint + ".new")
            os.replace(arguments.checkpoint + ".new", arguments.checkpoint)
        if arguments.pause:
            select.select([], [], [], arguments.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
