#!/usr/bin/env python3
"""How reliably hangs of scripts without marks are found, and that no hang is found in scripts that don't hang.

marks_bench.py [--hangs N] [--minutes M] [--step-ms MS]

Jobs of two ranks with torch, without options: plain DistributedDataParallel, accumulated gradients, two optimizers, a small
GPT, and, if installed, Accelerate, Lightning and the Trainer of transformers. First N of them hang: one rank sleeps, spins, is
stopped, or waits for a stuck child of its loader; the right rank must be named within ten steps and 5 s. Then, for M minutes in
all, jobs train with evaluations and saves by all ranks or by one, which take as long as ten steps in the first three kinds: no
rank may be named. Prints counts and times; exit status 1 if one differs.
"""

import argparse
import math
import os
import statistics
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from bed import FRAMEWORKS, LAUNCHERS, SLOW, TORCH_PYTHON, Bed  # noqa: E402

SUPPORT = os.path.join(ROOT, "tests", "support")
PLAIN = ("plain", "accumulate", "two")  # kinds of unmodified_worker.py
PYTHONS = {"gpt": LAUNCHERS, "accelerate": LAUNCHERS, "lightning": LAUNCHERS, "trainer": FRAMEWORKS}
HANGS = ("sleep", "spin", "stop", "loader")
HANG_AT = 30
EACH = 40  # steps between two saves of a framework's script


def kinds():
    return [*PLAIN, *(kind for kind, python in PYTHONS.items() if os.access(python, os.X_OK))]


def start(bed, kind, steps, step_ms, *plans):
    if kind in PLAIN:
        command = ["unmodified_worker.py", bed.journal.path, kind, steps, step_ms]
    else:
        command = [f"unmodified_{kind}.py", bed.journal.path, steps, step_ms, EACH]
    script, *words = command
    return bed.run("agent", ["--standalone", "--nproc_per_node", 2, "--max_restarts", 1, "--event_log", bed.events.path,
                             os.path.join(SUPPORT, script), *words, *plans],
                   env={"PYTHON_EXEC": PYTHONS.get(kind, TORCH_PYTHON)})


def hang(kind, plan, rank, step_ms):
    """(ranks named, seconds from the hang to the verdict)."""
    bed = Bed()
    try:
        agent = start(bed, kind, HANG_AT + 5, step_ms, f"{rank}@{HANG_AT}={plan}")
        begun = bed.wait(lambda: bed.journal.find("plan"), "the hang", 120 * SLOW, [agent])[0]["t"]
        found = bed.event("hang_named", who="service", timeout=120 * SLOW, alive=[agent])
        return found["ranks"], found["t"] - begun
    finally:
        bed.stop()
        bed.close()


def quiet(kind, minutes, step_ms):
    """How many were named in a job of so many minutes; -1: it didn't end well."""
    ten = f"{10 * step_ms / 1000:g}"
    plans = [f"*@/37=evaluate:{ten}", f"0@/53=evaluate:{ten}", f"1@/61=save:{ten}"] if kind in PLAIN else []
    bed = Bed()
    try:
        # Evaluations and saves are as long again; the bench needs not be exact.
        steps = max(100, int(minutes * 60_000 / step_ms / 1.6))
        agent = start(bed, kind, steps, step_ms, *plans)
        status = agent.wait(minutes * 60 * 4 + 120 * SLOW)
        bed.follower.refresh()
        return len(bed.events.find("hang_named")) if status == 0 else -1
    finally:
        bed.stop()
        bed.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hangs", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--step-ms", type=float, default=50)
    arguments = parser.parse_args()
    times, right = [], 0
    rounds = math.lcm(len(kinds()), len(HANGS))  # after so many each kind would meet the same hangs again
    for trial in range(arguments.hangs):
        kind, plan = kinds()[trial % len(kinds())], HANGS[(trial + trial // rounds) % len(HANGS)]
        rank = trial // len(HANGS) % 2
        named, took = hang(kind, plan, rank, arguments.step_ms)
        right += named == str(rank)
        times.append(took)
        print(f"{kind}, rank {rank}: {plan}: {named} named after {took:.2f} s", flush=True)
    # A step takes what is asked for and its own work, which is as much again at most.
    bound = 20 * arguments.step_ms / 1000 + 5
    in_time = sum(took <= bound for took in times)
    if times:
        print(f"right rank named in {right} of {len(times)}, within {bound:g} s in {in_time}; median "
              f"{statistics.median(times):.2f} s, longest {max(times):.2f} s", flush=True)
    alarms = 0
    for kind in kinds() if arguments.minutes > 0 else ():
        found = quiet(kind, arguments.minutes / len(kinds()), arguments.step_ms)
        print(f"{kind}: {found} false alarms in {arguments.minutes / len(kinds()):g} minutes", flush=True)
        alarms += found != 0
    sys.exit(0 if right == in_time == len(times) and alarms == 0 else 1)


if __name__ == "__main__":
    main()
