#!/usr/bin/env python3
"""examples/char_gpt in plain PyTorch, for comparison (twin.py)."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import twin

EVALUATION_BATCH = 64


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        parts = self.attention_in(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))


class Gpt(nn.Module):
    def __init__(self, words, options):
        super().__init__()
        self.tokens = nn.Embedding(words, options.width)
        self.positions = nn.Embedding(options.context_length, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, words)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, words):
        x = self.tokens(words) + self.positions.weight[:words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(outputs, targets):
    return F.cross_entropy(outputs.view(-1, outputs.shape[-1]), targets.reshape(-1))


def make(options):
    """The Trainer of a text: a sample is a window of it and the byte after each of its bytes."""
    with open(options.data, "rb") as file:
        text = file.read()
    words = sorted(set(text))
    number = {byte: i for i, byte in enumerate(words)}
    tokens = torch.tensor([number[byte] for byte in text], device=options.device)
    learned = len(text) * 9 // 10
    training = tokens[:learned].unfold(0, options.context_length + 1, 1)
    held_out = tokens[learned:].unfold(0, options.context_length + 1, options.context_length)
    gpt = Gpt(len(words), options)

    def load(samples, _):
        windows = training.index_select(0, torch.tensor(samples, device=options.device))
        return windows[:, :-1], windows[:, 1:]

    def evaluate():
        total = torch.zeros(1, dtype=torch.float64, device=options.device)
        mine = held_out[dist.get_rank()::dist.get_world_size()]
        for windows in mine.split(EVALUATION_BATCH):
            total += loss(gpt(windows[:, :-1]), windows[:, 1:]).double() * len(windows)
        dist.all_reduce(total)
        return f"loss {total.item() / len(held_out):.4f} on {len(held_out)} held-out windows"

    return twin.Trainer(options, gpt, len(training), load, loss, evaluate)


def main():
    parser = twin.parser(__doc__, data="/usr/share/common-licenses/GPL-3", batch_size=8, lr_schedule="cosine",
                         weight_decay=0.01)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=144)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context_length", type=int, default=64)
    options = parser.parse_args()
    twin.run(options, lambda: make(options))


if __name__ == "__main__":
    main()
