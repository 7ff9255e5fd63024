#!/usr/bin/env python3
"""Trains a small CNN on UCI's handwritten digits with plain PyTorch; that it marks its progress is all that it knows of ddprun.

    torchrun --nproc_per_node 2 train.py --data digits.csv.gz --checkpoint_dir checkpoints
    ddprun   --nproc_per_node 2 train.py --data digits.csv.gz --checkpoint_dir checkpoints
"""

import argparse
import gzip
import json
import mmap
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler


def default_data():
    """DDPRUN_DIGITS, else where scripts/demo and scripts/test put the digits."""
    cache = os.environ.get("DDPRUN_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
    return os.environ.get("DDPRUN_DIGITS") or os.path.join(cache, "digits", "digits.csv.gz")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=default_data(), help="digits.csv.gz; also DDPRUN_DIGITS")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch_size", type=int, default=32, help="of each worker")
    parser.add_argument("--learning_rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of torch in each worker")
    parser.add_argument("--checkpoint_dir", help="resumes from the checkpoint there")
    parser.add_argument("--checkpoint_every", type=int, default=20, help="steps")
    parser.add_argument("--journal", help="rank 0 appends a JSON line for each step")
    parser.add_argument("--step_delay_ms", type=float, default=0, help="to watch it")
    return parser.parse_args()


def load_digits(path):
    """Images [n, 1, 8, 8] in [0, 1] and labels [n], to learn from and held out: the last fifth, by other people."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file; scripts/demo fetches it, and --data names another one")
    with gzip.open(path, "rt") as lines:
        rows = torch.tensor([[float(field) for field in line.split(",")] for line in lines])
    images, labels = rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()
    learned = len(labels) * 4 // 5
    return (images[:learned], labels[:learned]), (images[learned:], labels[learned:])


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


def augment(images):
    """Every image a little turned, scaled, slanted and moved, as other hands would have written it."""
    def jitter(most):
        return (torch.rand(len(images)) * 2 - 1) * most
    angle, scale = jitter(0.2), 1 + jitter(0.12)
    across, along = torch.cos(angle) * scale, torch.sin(angle) * scale
    upper = torch.stack([across, jitter(0.15) - along, jitter(0.3)], 1)
    lower = torch.stack([along, across, jitter(0.3)], 1)
    grid = nn.functional.affine_grid(torch.stack([upper, lower], 1), images.shape, align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def accuracy(net, held_out):
    """Share of the held-out digits that are recognised; every rank looks at its part."""
    images, labels = held_out
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    net.eval()
    with torch.no_grad():
        right = (net(images[mine]).argmax(1) == labels[mine]).sum()
    net.train()
    dist.all_reduce(right)
    return right.item() / len(labels)


class Checkpoint:
    """One file, replaced as a whole, so that a crash leaves the old one or the new one."""

    def __init__(self, directory, net, optimizer):
        self.path = directory and os.path.join(directory, "digits.pt")
        self.net, self.optimizer = net, optimizer

    def load(self):
        if not self.path or not os.path.exists(self.path):
            return {"step": 0, "epoch": 0, "seen": 0}
        state = torch.load(self.path, weights_only=True)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["progress"]

    def save(self, progress):
        if not self.path or dist.get_rank() != 0:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        temporary = f"{self.path}.{os.getpid()}"
        torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "progress": progress},
                   temporary)
        os.replace(temporary, self.path)


def open_progress():
    """What marks where this worker is (docs/PROGRESS.md): under torchrun nobody looks."""
    path = os.environ.get("DDPRUN_PROGRESS")
    if not path:
        return lambda phase, step: None
    with open(path, "r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")

    def mark(phase, step):
        page[8] = phase << 56 | step
    return mark


TRAIN, CHECKPOINT, EVALUATION = 2, 3, 4
mark = open_progress()


def write_journal(path, step, loss):
    if path and dist.get_rank() == 0:
        line = {"t": time.monotonic(), "generation": int(os.environ.get("DDPRUN_GENERATION", 0)), "rank": 0,
                "world": dist.get_world_size(), "step": step, "loss": loss, "pid": os.getpid()}
        with open(path, "a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")


def train(arguments, net, optimizer, checkpoint, training, held_out):
    images, labels = training
    world, main = dist.get_world_size(), dist.get_rank() == 0
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    sampler = DistributedSampler(labels, seed=arguments.seed)
    progress, loss = checkpoint.load(), torch.tensor(0.0)
    if main and progress["step"]:
        print(f"resumed at step {progress['step']}, epoch {progress['epoch']}", flush=True)
    while progress["epoch"] < arguments.epochs:
        sampler.set_epoch(progress["epoch"])
        for group in optimizer.param_groups:  # falls linearly to a tenth
            group["lr"] = arguments.learning_rate * (1 - 0.9 * progress["epoch"] / arguments.epochs)
        order = torch.tensor(list(sampler))
        for batch in order[progress["seen"] // world:].split(arguments.batch_size):
            mark(TRAIN, progress["step"])
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(augment(images[batch])), labels[batch], label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            progress["step"] += 1
            progress["seen"] += len(batch) * world
            time.sleep(arguments.step_delay_ms / 1000)
            write_journal(arguments.journal, progress["step"], loss.item())
            if progress["step"] % arguments.checkpoint_every == 0:
                mark(CHECKPOINT, progress["step"])
                checkpoint.save(progress)
        progress["epoch"] += 1
        progress["seen"] = 0
        mark(EVALUATION, progress["step"])
        share = accuracy(net, held_out)
        if main:
            print(f"epoch {progress['epoch']:2}/{arguments.epochs}  step {progress['step']:4}  loss {loss.item():.4f}  "
                  f"held-out {share:.1%}", flush=True)
    mark(CHECKPOINT, progress["step"])
    checkpoint.save(progress)
    return progress["step"], accuracy(net, held_out)


@record
def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    dist.init_process_group("gloo")
    torch.manual_seed(arguments.seed + dist.get_rank())
    training, held_out = load_digits(arguments.data)
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=arguments.learning_rate)
    step, share = train(arguments, net, optimizer, Checkpoint(arguments.checkpoint_dir, net, optimizer), training,
                        held_out)
    if dist.get_rank() == 0:
        print(f"final accuracy {share:.1%} on {len(held_out[1])} held-out digits "
              f"(step {step}, world {dist.get_world_size()}, generation {os.environ.get('DDPRUN_GENERATION', 0)})",
              flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
