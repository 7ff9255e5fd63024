"""Ends by an error of the GPU: the kind of this generation in the list, "none" for a good end. On the CPU torch's words are
raised by hand."""

import argparse
import json
import os
import time

import torch

MEMORY = ("CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.65 GiB of "
          "which 7.12 GiB is free. Including non-PyTorch memory, this process has 72.51 GiB memory in use. "
          "Of the allocated memory 72.00 GiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated.")
ASSERT = ("CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, "
          "so the stacktrace below might be incorrect.")


def take_all(device):
    """Blocks of 8 GiB that nobody writes to, until there is no room."""
    if device == "cpu":
        raise torch.OutOfMemoryError(MEMORY)
    blocks = []
    while True:
        blocks.append(torch.empty(8 << 30, dtype=torch.uint8, device=device))


def read_beyond(device):
    """The seventh of four."""
    values = torch.arange(4.0, device=device)[torch.tensor([7], device=device)] if device != "cpu" else None
    if device == "cpu":
        raise RuntimeError(ASSERT)
    print(values.item(), flush=True)  # waits for the kernel


def compute(device):
    """A block of half of what is free: none of it is anybody else's any more."""
    free = torch.cuda.mem_get_info()[0] if device != "cpu" else 2 << 20
    block = torch.zeros(free // 2, dtype=torch.uint8, device=device)
    return int(block[-1].item()), free


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--journal", required=True)
    parser.add_argument("kinds", nargs="+", choices=("memory", "assert", "none"))
    arguments = parser.parse_args()
    generation = int(os.environ["DDPRUN_GENERATION"])
    kind = arguments.kinds[generation - 1]
    {"memory": take_all, "assert": read_beyond, "none": lambda device: None}[kind](arguments.device)
    last, free = compute(arguments.device)
    with open(arguments.journal, "a", encoding="utf-8") as sink:
        line = {"event": "computed", "t": time.monotonic(), "generation": generation, "free": free, "last": last}
        sink.write(json.dumps(line) + "\n")


main()
