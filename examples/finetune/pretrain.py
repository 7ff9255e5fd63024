#!/usr/bin/env python3
"""Trains a small CNN on the handwritten digits of some people with plain PyTorch, and writes its weights for the C++ program.

    python3 pretrain.py digits.csv.gz digits.safetensors
    ddprun --nproc_per_node 2 --no_python finetune --weights digits.safetensors
"""

import gzip
import sys

import torch
from safetensors.torch import save_model
from torch import nn

EPOCHS = 8
BATCH = 32


class Net(nn.Module):
    """The names and shapes are main.cc's."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.body(images))


def main():
    data, weights = sys.argv[1:]
    with gzip.open(data, "rt") as lines:
        rows = torch.tensor([[float(field) for field in line.split(",")] for line in lines])
    rows = rows[:len(rows) * 4 // 5]  # other people wrote the last fifth, which the C++ program learns from
    images, labels = rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        for chosen in torch.randperm(len(labels)).split(BATCH):
            loss = nn.functional.cross_entropy(net(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}  loss {loss.item():.4f}")
    save_model(net, weights)


if __name__ == "__main__":
    main()
