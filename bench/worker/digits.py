#!/usr/bin/env python3
"""examples/digits in plain PyTorch, for comparison (twin.py)."""

import gzip
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import twin


def default_data():
    """DDPRUN_DIGITS, else where scripts/demo and scripts/test put the digits."""
    cache = os.environ.get("DDPRUN_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
    return os.environ.get("DDPRUN_DIGITS") or os.path.join(cache, "digits", "digits.csv.gz")


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


def augment(images, generator):
    """Every image a little turned, scaled, slanted and moved, as other hands would have written it."""
    def jitter(most):
        return (torch.rand(len(images), generator=generator) * 2 - 1) * most
    angle, scale = jitter(0.2), 1 + jitter(0.12)
    across, along = torch.cos(angle) * scale, torch.sin(angle) * scale
    slant, right, down = jitter(0.15), jitter(0.3), jitter(0.3)
    upper = torch.stack([across, slant - along, right], 1)
    lower = torch.stack([along, across, down], 1)
    grid = F.affine_grid(torch.stack([upper, lower], 1), images.shape, align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


def make(options):
    """The Trainer of the digits; the last fifth, which other people wrote, is held out."""
    with gzip.open(options.data, "rt") as lines:
        rows = torch.tensor([[float(field) for field in line.split(",")] for line in lines])
    images, labels = rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()
    learned = len(labels) * 4 // 5
    net = make_net()

    def load(samples, generator):
        chosen = torch.tensor(samples)
        return augment(images[:learned].index_select(0, chosen), generator), labels[:learned].index_select(0, chosen)

    def evaluate():
        mine = slice(learned + dist.get_rank(), None, dist.get_world_size())
        right = (net(images[mine]).argmax(1) == labels[mine]).sum().double()
        dist.all_reduce(right)
        count = len(labels) - learned
        return f"accuracy {right.item() / count * 100:.1f}% on {count} held-out digits"

    return twin.Trainer(options, net, learned, load, loss, evaluate)


def main():
    options = twin.parser(__doc__, data=default_data(), epochs=16, learning_rate=4e-3).parse_args()
    twin.run(options, lambda: make(options))


if __name__ == "__main__":
    main()
