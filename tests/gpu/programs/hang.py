"""DDP in steps of 20 ms; before step --at one rank does something that holds up the others, as --how says. With SIGUSR1
those that can go on do so, and the job ends well.

sleep: it comes to no collective. kernel: it waits for one long kernel of the GPU, as CUDA does it by itself: in a busy loop;
without a GPU a busy loop in a library. blocking: for --seconds of work of the GPU in a system call; without a GPU in another one.
"""

import argparse
import ctypes
import hashlib
import os
import select
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from train import Journal

STEP = 0.02  # seconds
LONGEST = 40  # seconds of a kernel that nobody ends
TRIAL = 20_000_000  # cycles, about 12 ms


def cycles_of(seconds):
    """The cycles of torch.cuda._sleep that take so long. Other processes use the GPU, too, which only makes a trial longer."""
    took = []
    for _ in range(5):
        began = time.monotonic()
        torch.cuda._sleep(TRIAL)  # pylint: disable=protected-access
        torch.cuda.synchronize()
        took.append(time.monotonic() - began)
    return int(TRIAL * seconds / min(took))


def sleep(_device, _seconds):
    told, tell = os.pipe()
    signal.signal(signal.SIGUSR1, lambda *_: os.write(tell, b"."))
    return lambda: os.read(told, 1)


def kernel(device, _seconds):
    if device.type != "cuda":
        return lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)
    cycles = cycles_of(LONGEST)

    def run():
        torch.cuda._sleep(cycles)  # pylint: disable=protected-access
        torch.cuda.synchronize()
    return run


def blocking(device, seconds):
    if device.type != "cuda":
        return lambda: ctypes.CDLL(None).usleep(int(seconds * 1e6))
    cycles = cycles_of(seconds)

    def run():
        done = torch.cuda.Event(blocking=True)
        torch.cuda._sleep(cycles)  # pylint: disable=protected-access
        done.record()
        done.synchronize()
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--at", type=int, default=40)
    parser.add_argument("--who", type=int, default=1)
    parser.add_argument("--how", choices=("sleep", "kernel", "blocking"), required=True)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    rank, device = int(os.environ["RANK"]), torch.device(arguments.device)
    journal = Journal(arguments.journal, rank)
    hold_up = {"sleep": sleep, "kernel": kernel, "blocking": blocking}[arguments.how](device, arguments.seconds)
    dist.init_process_group(arguments.backend)
    model = DistributedDataParallel(torch.nn.Linear(8, 8).to(device), device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, arguments.at + 5):
        if step == arguments.at and rank == arguments.who:
            journal.say("holds_up", how=arguments.how)
            hold_up()
            journal.say("goes_on")
        loss = model(torch.ones(4, 8, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        select.select([], [], [], STEP)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
