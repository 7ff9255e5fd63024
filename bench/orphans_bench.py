#!/usr/bin/env python3
"""Kills agents at random moments, and looks for processes that outlive them.

orphans_bench.py [--kills N] [--seed N] [--torchrun-kills N]

Each job has a worker that leaves processes in sessions of their own (setsid, twice forked), as data loaders and
wrappers do. Exit status 1 when anything is left 2 s after an agent of ddprun was killed (SIGKILL).
"""

import argparse
import os
import random
import select
import signal
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "contract"))

import jobs  # noqa: E402
from timeline import kill_tagged, leftovers  # noqa: E402

# Children in the worker's session, in one of their own, and below a parent that has gone.
WORKER = """sleep 1000 &
setsid sleep 1001 &
(setsid sh -c 'sleep 1002 & sleep 1003 & wait' &)
echo ready >> "$1"
sleep 1004
"""
GONE_WITHIN = 2.0


def kill_one(launcher, rng, patience):
    """What is left after one agent was killed; and how long the last of it lived on."""
    job = jobs.Job(launcher)
    try:
        script = job.write("worker.sh", WORKER)
        ready = job.write("ready", "")
        agent = job.start(["--standalone", "--nproc_per_node", 2, "--no_python", "sh", script, ready])
        job.watch(ready)
        # Now and then before there is a worker, mostly when all are there.
        wanted = rng.choice((0, 1, 2, 2, 2))
        job.wait(lambda: wanted == 0 or job.text("ready").count("ready") >= wanted, "workers", launcher.patience)
        if rng.random() < 0.5:  # the kernel's timer decides the moment, not our own progress
            select.select([], [], [], rng.uniform(0, 0.05))
        killed = time.monotonic()
        agent.signal(signal.SIGKILL)
        left = leftovers(job.tag, patience)
        return left, time.monotonic() - killed
    finally:
        kill_tagged(job.tag)
        job.close()


def count(launcher, kills, rng, patience):
    """(kills after which something was left, [seconds until nothing was])"""
    orphaned, took = 0, []
    for _ in range(kills):
        left, seconds = kill_one(launcher, rng, patience)
        if left:
            orphaned += 1
            print(f"    {launcher.name}: {left}", flush=True)
        else:
            took.append(seconds)
    return orphaned, sorted(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--torchrun-kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    rng = random.Random(arguments.seed)
    orphaned, took = count(jobs.OURS, arguments.kills, rng, GONE_WITHIN)
    middle = f"; all gone after {1000 * took[len(took) // 2]:.0f} ms (median), {1000 * took[-1]:.0f} ms (longest)" if took else ""
    print(f"ddprun: orphans after {orphaned} of {arguments.kills} kills{middle}", flush=True)
    theirs = arguments.torchrun_kills if jobs.PINNED.is_there() else 0
    if theirs:
        print(f"torchrun: orphans after {count(jobs.PINNED, theirs, rng, GONE_WITHIN)[0]} of {theirs} kills", flush=True)
    return 1 if orphaned else 0


if __name__ == "__main__":
    sys.exit(main())
