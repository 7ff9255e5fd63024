#!/usr/bin/env python3
"""How often a plain PyTorch script under gloo recovers: ddprun and torchrun side by side.

recovery_bench.py [--trials N] [--torchrun-trials N] [--only WORDS]

Counts, for each kind of fault, the trials in which all workers trained again within the bound and the
job then ended well. Exit status 1 when ddprun's count is below N; 77 without PyTorch.
"""

import argparse
import os
import signal
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "contract"))

import jobs  # noqa: E402

# Seconds within which a trial's workers must train again; torchrun waits 15 s for heartbeats and 30 s for a last call.
BOUND = {"ddprun": 60, "torchrun": 90}

# Adds up numbers with all other workers until one of them gets SIGUSR1; writes a line to the journal after its first step.
TRAIN = """import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
told = False
while True:
    end = signal.sigtimedwait({signal.SIGUSR1}, 0.02) is not None
    flag = torch.tensor([float(end)])
    dist.all_reduce(flag)
    if not told: probe.tell()
    told = True
    if flag.item() > 0: break
dist.destroy_process_group()
"""


class Trial:
    """One job of two nodes (or fewer), each with one worker."""

    def __init__(self, launcher, nnodes):
        self.job = jobs.Job(launcher)
        self.bound = BOUND[launcher.name] * jobs.SLOW
        self.port = jobs.free_port()
        self.nnodes = nnodes
        self.script = self.job.script(TRAIN)

    def start(self, name):
        """A node; the one of name "host" hosts the rendezvous."""
        options = [*self.job.c10d(self.nnodes, self.port, last_call_timeout=2, is_host=int(name == "host")),
                   "--max-restarts", 3]
        return self.job.start([*options, self.script], name=name, env={"PYTHON_EXEC": jobs.TORCH_PYTHON})

    def trained(self, world, after=0.0):
        return self.job.await_workers(world, after=after, world=world, timeout=self.bound)

    def end_well(self, lines, nodes):
        self.job.finish(lines[:1])
        return all(self.job.end(node, self.bound).status == 0 for node in nodes)

    def close(self):
        jobs.kill_tagged(self.job.tag)
        self.job.close()


def killed_worker(nnodes):
    """A worker is killed; both ranks train again."""
    def run(trial):
        nodes = [trial.start(name) for name in ("host", "other")]
        before = trial.trained(2)
        fault = time.monotonic()
        os.kill(before[1]["pid"], signal.SIGKILL)
        return trial.end_well(trial.trained(2, fault), nodes)
    run.nnodes = nnodes
    return run


def scale_up(trial):
    """A second node joins a job that runs on one."""
    first = trial.start("host")
    trial.trained(1)
    joined = time.monotonic()
    second = trial.start("other")
    return trial.end_well(trial.trained(2, joined), (first, second))


def scale_down(trial):
    """The launcher and worker of one of two nodes are killed; the other goes on alone."""
    host = trial.start("host")
    other = trial.start("other")
    before = trial.trained(2)
    fault = time.monotonic()
    other.signal(signal.SIGKILL)
    left = [line for line in before if parent_of(line["pid"], {host.pid, other.pid}) != host.pid]
    trial.job.signal_workers(left, signal.SIGKILL)
    return trial.end_well(trial.trained(1, fault), [host])


scale_up.nnodes = scale_down.nnodes = "1:2"


def parent_of(pid, launchers):
    """The one of these processes from which `pid` descends; 0 when that is none."""
    while pid > 1 and pid not in launchers:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as source:
                pid = int(source.read().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return 0
    return pid


CELLS = [
    ("killed worker, --nnodes 2", killed_worker("2")),
    ("killed worker, --nnodes 1:2", killed_worker("1:2")),
    ("a node joins, --nnodes 1:2", scale_up),
    ("a node is lost, --nnodes 1:2", scale_down),
]


def count(launcher, cell, trials):
    """How many of these trials recovered; says why one did not."""
    held = 0
    for _ in range(trials):
        trial = Trial(launcher, cell.nnodes)
        try:
            held += cell(trial)
        except jobs.TimelineError as error:
            print(f"    {launcher.name}: {error}", flush=True)
        finally:
            trial.close()
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50, help="of each fault, with ddprun")
    parser.add_argument("--torchrun-trials", type=int, default=5, help="of each fault, with torchrun; 0: none")
    parser.add_argument("--only", default="", help="the faults whose names hold these words")
    arguments = parser.parse_args()
    if not jobs.PINNED.is_there():
        print(f"{jobs.TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    worse = False
    for name, cell in [(name, cell) for name, cell in CELLS if arguments.only in name]:
        ours = count(jobs.OURS, cell, arguments.trials)
        theirs = count(jobs.PINNED, cell, arguments.torchrun_trials)
        beside = f"{theirs} of {arguments.torchrun_trials}" if arguments.torchrun_trials else "not run"
        print(f"{name:<32}ddprun {ours} of {arguments.trials}, torchrun {beside}", flush=True)
        worse = worse or ours < arguments.trials
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
