#!/usr/bin/env python3
"""What interpreters that are kept ready (--warm) cost a training: processor time, and speed.

parked_bench.py [--seconds N] [--pairs N] [--check]

Two jobs of two ranks under PyTorch's DistributedDataParallel, with --warm on and off. First the warm job trains for N seconds,
and the processor time of the waiting interpreters is added up. Then the jobs take turns of a second, in which all processes of
the other job are stopped, so that other load of the machine meets both alike. --check: exit status 1 if the interpreters take
more than 5 % of a core, or the warm job is more than 1 % slower, beyond chance (two standard errors). 77 without PyTorch.
"""

import argparse
import mmap
import os
import select
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import SLOW, TORCH_PYTHON, Bed, torch_is_there  # noqa: E402
from timeline import TimelineError, state_of, tagged  # noqa: E402

# Each rank counts its steps in a file.
TRAIN = """
import mmap, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
path = f"{sys.argv[1]}.{os.environ['RANK']}"
with open(path + ".new", "wb") as file:
    file.write(bytes(8))
with open(path + ".new", "r+b") as file:
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
inputs = torch.randn(64, 256)
while True:
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if count[0] == 0:
        os.rename(path + ".new", path)
    count[0] += 1
"""
TURN, SETTLING = 1.0, 0.1  # seconds of a turn, and of its beginning that doesn't count
BOUND = 60 * SLOW  # seconds for one thing


def pause(seconds):
    select.select([], [], [], seconds)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
        fields = source.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime; source: proc(5)


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as source:
            return list(map(int, source.read().split()))
    except OSError:
        return []


class Training:
    def __init__(self, warm):
        self.bed = Bed()
        self.bed.environment.update(PYTHON_EXEC=TORCH_PYTHON, XDG_CACHE_HOME=self.bed.path("cache"), OMP_NUM_THREADS="1")
        script = self.bed.write("train.py", TRAIN)
        self.agent = self.bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--warm", "on" if warm else "off",
                                            "--event_log", self.bed.events.path, script, self.bed.path("steps")])
        self.bed.follower.watch(self.bed.folder)
        if warm:
            self.bed.event("warm_ready", timeout=BOUND, alive=[self.agent])

    def count(self):
        """Opens what rank 0 counts in, once it trains."""
        path = self.bed.path("steps.0")
        for _ in range(int(10 * BOUND)):
            if os.path.exists(path):
                break
            pause(0.1)
        with open(path, "rb") as file:
            self.steps = memoryview(mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)).cast("Q")

    def signal(self, number):
        for pid in tagged(self.bed.tag):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def waiting(self):
        """The keeper's children that are no workers, and theirs: what waits."""
        self.bed.follower.refresh()
        workers = {line["worker_pid"] for line in self.bed.events.find("worker_started")}
        found = [pid for pid in children(self.bed.event("agent_start")["keeper"]) if pid not in workers]
        for pid in found:
            found += children(pid)
        return [pid for pid in found if state_of(pid) not in (None, "Z")]

    def speed(self):
        """Steps a second of one turn."""
        self.signal(signal.SIGCONT)
        pause(SETTLING)
        before, began = self.steps[0], time.monotonic()
        pause(TURN - SETTLING)
        taken, took = self.steps[0] - before, time.monotonic() - began
        self.signal(signal.SIGSTOP)
        return taken / took

    def close(self):
        self.signal(signal.SIGCONT)
        self.bed.stop()
        self.bed.close()


def processor_share(training, seconds):
    """Of one core, what waits beside the training takes."""
    pids = training.waiting()
    if len(pids) != 3:
        raise TimelineError(f"{len(pids)} processes wait, not one interpreter and two forks of it")
    before, began, steps = sum(map(processor_seconds, pids)), time.monotonic(), training.steps[0]
    pause(seconds)
    share = (sum(map(processor_seconds, pids)) - before) / (time.monotonic() - began)
    print(f"{len(pids)} processes that wait took {100 * share:.3f} % of a core over {seconds:g} s, in which "
          f"{training.steps[0] - steps} steps were trained", flush=True)
    return share


def compare_speeds(warm, cold, pairs):
    """(mean of the pairs' ratios warm : cold, its standard error)."""
    warm.signal(signal.SIGSTOP)
    cold.signal(signal.SIGSTOP)
    ratios = []
    for pair in range(pairs):
        order = (warm, cold) if pair % 2 == 0 else (cold, warm)
        speeds = {training: training.speed() for training in order}
        ratios.append(speeds[warm] / speeds[cold])
    mean, error = statistics.mean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"speed with what waits : without = {mean:.4f}, standard error {error:.4f}, median {statistics.median(ratios):.4f}, of "
          f"{pairs} pairs of turns; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    return mean, error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not torch_is_there():
        print(f"{TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    trainings = []
    try:
        for warm in (True, False):
            trainings.append(Training(warm))
            trainings[-1].count()
            if warm:
                pause(1)  # the next worker is forked
                share = processor_share(trainings[0], arguments.seconds)
        mean, error = compare_speeds(*trainings, arguments.pairs)
    finally:
        for training in trainings:
            training.close()
    return 1 if arguments.check and (share > 0.05 or mean + 2 * error < 0.99) else 0


if __name__ == "__main__":
    sys.exit(main())
