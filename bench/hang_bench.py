#!/usr/bin/env python3
"""How reliably and how fast a stopped worker is found, and whether slow programs are left alone.

hang_bench.py [--trials N] [--slow-trials N] [--step-ms MS]

Each trial is a job of two ranks that mark their progress (docs/PROGRESS.md) and meet after each step. In the first kind one
rank gets SIGSTOP: the guilty rank must be named each time, and the next generation spawned within 3 x its p99.9
step + 0.5 s and two samples of 100 ms; p99.9 is what the agent learned, read from the limit that it reports. In the second
all steps take ten times as long from some step on, without marks in between: there must be no verdict. Prints counts and
times; exit status 1 if one trial differs.
"""

import argparse
import os
import random
import re
import signal
import statistics
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import SLOW, Bed, free_port  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "marking_worker.py")
# From the verdict to the next generation's spawn, beside the samples: killing, sweeping, assigning.
OWN_SHARE = 0.15


def start(bed, step_ms, steps, *plans):
    return bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--max_restarts", 1, "--event_log", bed.events.path,
                             WORKER, bed.journal.path, free_port(), step_ms, steps, *plans])


def seconds(text):
    """Of a duration as the agent writes it: "830ms", "1.25s"."""
    number, unit = re.fullmatch(r"([\d.]+)(ms|s)", text).groups()
    return float(number) * (0.001 if unit == "ms" else 1)


def stopped(step_ms, learned):
    """(guilty ranks as named, seconds from the stop to that, the bound) of one trial."""
    bed = Bed()
    try:
        agent = start(bed, step_ms, 100_000)
        bed.wait(lambda: len(bed.journal.find("step", step=learned, attempt=0)) == 2, "steps", 600 * SLOW, [agent])
        victim = random.randrange(2)
        bed.signal_workers(bed.workers(1, 2)[victim:victim + 1], signal.SIGSTOP)
        named = bed.event("hang_named", who="service", timeout=60 * SLOW, alive=[agent])
        took = named["t"] - bed.event("worker_suspended")["t"]
        limit = seconds(re.search(r"for ([\d.]+m?s)", bed.event("hang_suspect", local_rank=str(victim))["why"]).group(1))
        return named["ranks"] == str(victim), took, limit + 0.2 + OWN_SHARE * SLOW
    finally:
        bed.stop()
        bed.close()


def slower(step_ms):
    """Whether a program whose steps take ten times as long ends without a verdict or a restart."""
    bed = Bed()
    try:
        agent = start(bed, step_ms, 430, "*@400=slower")
        status = agent.wait(120 * SLOW)
        bed.follower.refresh()
        return status == 0 and not bed.events.find("hang_named") and not bed.journal.find("worker", generation=2)
    finally:
        bed.stop()
        bed.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--slow-trials", type=int, default=100)
    parser.add_argument("--step-ms", type=float, default=4)
    arguments = parser.parse_args()
    results = [stopped(arguments.step_ms, 1200) for _ in range(arguments.trials)]
    named = sum(guilty for guilty, _, _ in results)
    in_time = sum(took <= bound for _, took, bound in results)
    if results:
        times = [took for _, took, _ in results]
        print(f"SIGSTOP of one of two ranks: guilty rank named in {named} of {len(results)}, within its "
              f"bound in {in_time} of {len(results)}; median {statistics.median(times):.3f} s, longest {max(times):.3f} s, "
              f"bounds {min(b for _, _, b in results):.3f} to {max(b for _, _, b in results):.3f} s", flush=True)
    quiet = sum(slower(arguments.step_ms) for _ in range(arguments.slow_trials))
    print(f"ten times slower but alive: no verdict in {quiet} of {arguments.slow_trials}", flush=True)
    sys.exit(0 if named == in_time == len(results) and quiet == arguments.slow_trials else 1)


if __name__ == "__main__":
    main()
