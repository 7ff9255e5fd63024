#!/usr/bin/env python3
"""A training script in the manner of nanoGPT, which knows nothing of ddprun: DistributedDataParallel, batches that processes of a
loader draw at random from a text, two of them a step. Arguments: planned_script.py."""

import math
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from planned_script import PlannedScript

BLOCK, WIDTH, HEADS, LAYERS, DROPOUT, BATCH, ACCUMULATED = 32, 32, 2, 2, 0.1, 4, 2


class Pieces(torch.utils.data.Dataset):
    def __init__(self, text, length):
        self.tokens = np.frombuffer(text, dtype=np.uint8)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        at = int(torch.randint(len(self.tokens) - BLOCK - 1, ()))
        piece = torch.from_numpy(self.tokens[at:at + BLOCK + 1].astype(np.int64)) % 128
        return piece[:-1], piece[1:]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT))

    def forward(self, x):
        size = x.shape
        q, k, v = (part.view(*size[:2], HEADS, -1).transpose(1, 2) for part in self.queries(self.norms[0](x)).chunk(3, 2))
        attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT if self.training else 0, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(size))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.Sequential(nn.Dropout(DROPOUT), *(Layer() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, 128, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        logits = self.head(self.layers(self.tokens(tokens) + self.places.weight))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Training:
    def __init__(self, script):
        self.script, self.step = script, 0
        torch.manual_seed(1)
        self.raw = Gpt()
        self.model = DistributedDataParallel(self.raw)
        decayed = [p for p in self.raw.parameters() if p.dim() >= 2]
        others = [p for p in self.raw.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others}], 1e-2)
        with open(os.__file__, "rb") as file:
            text = file.read()
        pieces = Pieces(text, script.each * ACCUMULATED * BATCH)
        self.loader = torch.utils.data.DataLoader(pieces, batch_size=BATCH, num_workers=2)
        torch.manual_seed(1 + script.rank)

    def save(self):
        """What differs between ranks, each; the rest, the first one."""
        files = {f"random_{self.script.rank}.pt": torch.get_rng_state()}
        if self.script.rank == 0:
            files["training.pt"] = {"step": self.step, "model": self.raw.state_dict(), "optimizer": self.optimizer.state_dict()}
        for name, what in files.items():
            path = os.path.join(self.script.folder, name)
            torch.save(what, path + ".new")
            os.replace(path + ".new", path)

    def resume(self):
        path = os.path.join(self.script.folder, "training.pt")
        if not os.path.exists(path):
            return
        saved = torch.load(path)
        self.step = saved["step"]
        self.raw.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(torch.load(os.path.join(self.script.folder, f"random_{self.script.rank}.pt")))

    @torch.no_grad()
    def evaluate(self):
        self.raw.eval()
        tokens = torch.arange(BLOCK + 1).repeat(BATCH, 1)
        losses = [self.raw(tokens[:, :-1], tokens[:, 1:]).item() for _ in range(20)]
        self.raw.train()
        return sum(losses) / len(losses)

    def train_epoch(self):
        batches = iter(self.loader)
        for _ in range(self.script.each):
            self.script.before(self.step + 1)
            for group in self.optimizer.param_groups:
                group["lr"] = 1e-2 * (0.1 + 0.45 * (1 + math.cos(math.pi * self.step / self.script.steps)))
            losses = []
            for batch in range(ACCUMULATED):
                self.model.require_backward_grad_sync = batch == ACCUMULATED - 1
                loss = self.model(*next(batches)) / ACCUMULATED
                loss.backward()
                losses.append(loss.item())
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.script.after(self.step, sum(losses))


def main():
    script = PlannedScript()
    dist.init_process_group("gloo")
    training = Training(script)
    training.resume()
    while training.step < script.steps:
        training.train_epoch()
        if script.rank == 0:
            print(f"step {training.step}: loss {training.evaluate():.4f}", flush=True)
        training.save()
    script.end()


if __name__ == "__main__":
    main()
