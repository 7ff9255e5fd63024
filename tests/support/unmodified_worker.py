#!/usr/bin/env python3
"""A training script as people have them: it knows nothing of ddprun, and marks nothing unless KIND says so.

unmodified_worker.py JOURNAL KIND STEPS [STEP_MS [RANK@STEP=PLAN[:SECONDS]]…]  (@/STEP: each STEP steps)
  KIND: plain, accumulate (4 batches a step), two (optimizers that take turns), loader (its children step an optimizer of their
  own), compiled (a compiled optimizer), forked (a child trains on), own (marks itself before the steps), late (after three);
  several with commas: one for each attempt. bare writes down what it sees and ends, without torch

Takes STEPS steps under DistributedDataParallel, writes down what is on its page of progress and what it sees of its
environment, and waits for SIGUSR1; at SIGUSR2 it takes ten more steps first.

STEP_MS is what a step takes beside its work; with it the worker ends by itself. A PLAN is carried out before a step of the first
attempt, or of another (#ATTEMPT behind it), by RANK or by all (*): sleep, spin, stop, loader (its child waits for a lock that
it has), native (in a system call), deadlock (of two locks), and of several ranks all_reduce beside broadcast, and groups:01
beside groups:10 are hangs; kill is SIGKILL; await waits for a byte of the FIFO JOURNAL.fifo; evaluate and save
are what people's scripts do, for SECONDS; pause stands still so long, in each attempt.
"""

import os
import re
import select
import signal
import sys
import threading
import time

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})  # before torch has threads

# What a script sees before it has imported anything.
SEEN = {"PYTHONPATH": os.environ.get("PYTHONPATH"), "path": list(sys.path), "finders": len(sys.meta_path),
        "variables": sorted(name for name in os.environ if name.startswith(("DDPRUN_MARK", "DDPRUN_WARM"))),
        "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None)}

from worker import write_line  # noqa: E402

if sys.argv[2:3] == ["bare"]:
    write_line(sys.argv[1], "bare", seen=SEEN)
    sys.exit()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Stuck(Dataset):
    """Rows of a child that waits for a lock which it has itself."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


class Rows(Dataset):
    """Rows that are made by steps of an optimizer, in a child of the worker."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(10):
            optimizer.step()
        return torch.ones(4)


PAUSE = 0.005  # seconds between batches of an evaluation: it is at work, but other tests, too


def page_words():
    with open(os.environ["DDPRUN_PROGRESS"], "rb") as file:
        return list(memoryview(file.read(4096)).cast("Q"))


def mark(phase, step):
    with open(os.environ["DDPRUN_PROGRESS"], "r+b") as file:
        file.seek(64)
        file.write((phase << 56 | step).to_bytes(8, sys.byteorder))


class Training:
    def __init__(self, kind):
        self.kind = kind
        self.model = DistributedDataParallel(torch.nn.Linear(4, 4))
        self.optimizers = [torch.optim.Adam(self.model.parameters(), 0.01)]
        if kind == "two":
            self.optimizers.append(torch.optim.SGD(self.model.parameters(), 0.01))
        self.batches = iter(DataLoader(Rows(), batch_size=2, num_workers=2)) if kind == "loader" else None
        self.taken = 0
        self.compiled = torch.compile(self.optimizers[0].step, backend="eager") if kind == "compiled" else None

    def step(self):
        if self.kind == "own" or (self.kind == "late" and self.taken >= 3):
            mark(2, 1000 + self.taken)
        for _ in range(4 if self.kind == "accumulate" else 1):
            batch = torch.ones(2, 4) if self.batches is None else next(self.batches)
            self.model(batch).sum().backward()
        for optimizer in self.optimizers:
            (self.compiled or optimizer.step)()
            optimizer.zero_grad()
        self.taken += 1


    def evaluate(self, seconds):
        """Evaluates as people do: batches through the model, without gradients."""
        until = time.monotonic() + seconds
        losses = []
        with torch.no_grad():
            while time.monotonic() < until:
                output = self.model.module(torch.rand(64, 4))
                losses.append(torch.nn.functional.mse_loss(output, torch.ones_like(output)).item())
                stand(PAUSE)
        return sum(losses) / len(losses)

    def save(self, seconds, path):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            torch.save({"model": self.model.state_dict(), "more": torch.zeros(100000)}, path)
            stand(PAUSE)


def stand(seconds):
    select.select([], [], [], seconds)


def deadlock():
    """Deadlocks two threads, which take two locks in opposite orders."""
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def other():
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other).start()
    with first:
        both.wait()
        with second:
            pass


def collective(plan, order):
    """This rank's part of collectives that can't meet."""
    if plan == "groups":
        groups = [dist.new_group() for _ in range(2)]
        for which in order:
            dist.all_reduce(torch.ones(4), group=groups[int(which)])
    elif plan == "broadcast":
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))


def spin():
    while True:
        pass


def due(plans, rank, step):
    """(what, how: mostly seconds) of those that are for this step of this rank and attempt."""
    for plan in plans:
        who, each, at, what, seconds, attempt = re.fullmatch(
            r"(\d+|\*)@(/?)(\d+)=(\w+)(?::([\d.]+))?(?:#(\d+))?", plan).groups()
        if os.environ["TORCHELASTIC_RESTART_COUNT"] != (attempt or "0") and what != "pause":
            continue
        if who in (str(rank), "*") and (step % int(at) == 0 if each else step == int(at)):
            yield what, seconds or "0"


def carry_out(plan, how, training, journal):
    write_line(journal, "plan", plan=plan, rank=dist.get_rank())
    seconds = float(how)
    if plan == "sleep":
        stand(100000)
    elif plan == "spin":
        spin()
    elif plan == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif plan == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif plan == "await":
        os.read(os.open(journal + ".fifo", os.O_RDONLY), 1)
    elif plan == "deadlock":
        deadlock()
    elif plan in ("all_reduce", "broadcast", "groups"):
        collective(plan, how)
    elif plan == "loader":
        next(iter(DataLoader(Stuck(), num_workers=1)))
    elif plan == "native":
        os.read(os.pipe()[0], 1)
    elif plan == "evaluate":
        training.evaluate(seconds)
    elif plan == "pause":
        stand(seconds)
    elif plan == "save":
        training.save(seconds, f"{journal}.{dist.get_rank()}.pt")


def train_by_plan(training, journal, steps, step_ms, plans):
    for step in range(1, steps + 1):
        for what, how in due(plans, dist.get_rank(), step):
            carry_out(what, how, training, journal)
        stand(step_ms / 1000)
        training.step()
    write_line(journal, "trained", rank=dist.get_rank(), attempt=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    dist.barrier()
    os._exit(0)


def main():
    journal, kind, steps, *by_plan = sys.argv[1:]
    kinds = kind.split(",")
    kind = kinds[int(os.environ["TORCHELASTIC_RESTART_COUNT"]) % len(kinds)]
    dist.init_process_group("gloo")
    training = Training(kind)
    if by_plan:
        train_by_plan(training, journal, int(steps), float(by_plan[0]), by_plan[1:])
    for _ in range(int(steps)):
        training.step()
    if kind == "forked":
        if os.fork() == 0:
            training.optimizers[0].step()
            os._exit(0)
        os.wait()
    words = page_words()
    write_line(journal, "worker", rank=dist.get_rank(), generation=int(os.environ["DDPRUN_GENERATION"]), seen=SEEN,
               phase=words[8] >> 56, step=words[8] & (1 << 56) - 1, timed=words[9] > 0, torch="torch.optim" in sys.modules)
    while signal.sigwait({signal.SIGUSR1, signal.SIGUSR2}) == signal.SIGUSR2:
        for _ in range(10):
            training.step()
        write_line(journal, "more", rank=dist.get_rank(), taken=training.taken)
    dist.destroy_process_group()
    os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends


if __name__ == "__main__":
    main()
