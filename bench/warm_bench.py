#!/usr/bin/env python3
"""Seconds from the SIGKILL of a worker to the first step of all workers anew.

warm_bench.py [--kills N] [--torchrun-kills N] [--check] [--json FILE]

A plain PyTorch DDP script under gloo, two nodes of one worker on this machine: ddprun --warm on, ddprun, and torchrun beside
them. --check: exit status 1 when warm isn't 5 times sooner than ddprun is cold, and 10 times than torchrun. 77 without PyTorch.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "contract"))

import jobs  # noqa: E402

TRAIN = """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
told = False
while True:
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    end = signal.sigtimedwait({signal.SIGUSR1}, 0.01) is not None
    flag = torch.tensor([float(end)])
    dist.all_reduce(flag)
    if not told: probe.tell()
    told = True
    if flag.item() > 0: break
dist.destroy_process_group()
"""

WAYS = {  # name: (launcher, options)
    "warm": (jobs.OURS, ("--warm", "on")),
    "cold": (jobs.OURS, ()),
    "torchrun": (jobs.THEIRS, ()),
}
BOUND = 120  # seconds for one thing


class Training:
    def __init__(self, way):
        launcher, self.options = WAYS[way]
        self.job = jobs.Job(launcher)
        self.job.environment["XDG_CACHE_HOME"] = self.job.path("cache")
        self.warm = way == "warm"
        self.port = jobs.free_port()
        self.script = self.job.script(TRAIN)

    def start(self, kills):
        options = [*self.job.c10d(2, self.port, last_call_timeout=2), "--max-restarts", kills + 1, *self.options]
        log = ["--event_log", self.job.events.path] if self.job.launcher is jobs.OURS else []
        self.nodes = [self.job.start([*options, *log, self.script], name=f"node{rank}", env={"PYTHON_EXEC": jobs.TORCH_PYTHON})
                      for rank in (0, 1)]

    def trained(self, after):
        return self.job.await_workers(2, after=after, world=2, timeout=BOUND * jobs.SLOW)

    def await_parked(self):
        """Until both nodes have an interpreter that waits: some seconds after the first step."""
        if self.warm:
            self.job.event("warm_ready", count=2, timeout=BOUND * jobs.SLOW)

    def kill(self, lines):
        """Seconds until both train again, and their lines."""
        fault = time.monotonic()
        os.kill(lines[1]["pid"], signal.SIGKILL)
        anew = self.trained(fault)
        return max(line["t"] for line in anew) - fault, anew

    def end(self, lines):
        self.job.finish(lines[:1])
        for node in self.nodes:
            self.job.end(node, BOUND * jobs.SLOW)

    def close(self):
        jobs.kill_tagged(self.job.tag)
        self.job.close()


def kills_of(way, count):
    training = Training(way)
    try:
        training.start(count)
        lines = training.trained(0.0)
        training.await_parked()
        seconds = []
        for _ in range(count):
            took, lines = training.kill(lines)
            seconds.append(took)
        training.end(lines)
        return seconds
    finally:
        training.close()


def shown(seconds):
    if not seconds:
        return "not run"
    return f"median {statistics.median(seconds):.3f} s, best {min(seconds):.3f}, worst {max(seconds):.3f} of {len(seconds)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="in one job, with ddprun each way")
    parser.add_argument("--torchrun-kills", type=int, default=3, help="the same with torchrun; 0: none")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    if not jobs.torchrun_is_there():
        print(f"{jobs.TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    seconds = {}
    for way in WAYS:
        count = arguments.torchrun_kills if way == "torchrun" else arguments.kills
        seconds[way] = kills_of(way, count) if count else []
        print(f"killed worker to first step, {way:<9}{shown(seconds[way])}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as sink:
            json.dump(seconds, sink, indent=1)
    if not arguments.check:
        return 0
    warm = statistics.median(seconds["warm"])
    # Of torchrun its best, as far as it recovered at all.
    held = [warm * 5 <= statistics.median(seconds["cold"]), not seconds["torchrun"] or warm * 10 <= min(seconds["torchrun"])]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
