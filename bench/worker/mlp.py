"""mlp.cc in plain torch DDP, for comparison: DATA BACKEND STEPS; prints the same JSON line."""

import gzip
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 32
WARM_UP_STEPS = 10


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 128)
        self.b = nn.Linear(128, 128)
        self.c = nn.Linear(128, 10)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def load(path):
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = [line.split(",") for line in file]
    images = torch.tensor([[float(value) / 16 for value in row[:64]] for row in rows])
    return images, torch.tensor([int(float(row[64])) for row in rows])


def main():
    data, backend, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    images, labels = load(data)
    torch.manual_seed(0)
    network = Network()
    ddp = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    torch.manual_seed(100 + dist.get_rank())
    begin = first = loss_value = 0.0
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            begin = time.monotonic()
        rows = torch.randint(labels.shape[0], (BATCH,))
        logits = ddp(images.index_select(0, rows))
        loss = F.cross_entropy(logits, labels.index_select(0, rows))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        loss_value = loss.item()
        if step == 0:
            first = time.monotonic()
    end = time.monotonic()
    if dist.get_rank() == 0:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"first": first, "begin": begin, "end": end, "loss": loss_value, "rss": rss, "batch": BATCH}),
              flush=True)
    # Gloo's threads abort the interpreter's end now and then.
    os._exit(0)


if __name__ == "__main__":
    main()
