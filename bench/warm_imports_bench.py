#!/usr/bin/env python3
"""What the default of --warm costs and gains scripts with widely used libraries: a plain DDP script with each of them, in pairs
with --warm off, on two nodes of one worker.

warm_imports_bench.py [--pairs N] [--after SECONDS] [--starts] [--only NAME]… [--check]

Seconds from the command to the first step of all, and from the SIGKILL of a worker, SECONDS (5) after that, to the next step.
--starts: starts alone; many pairs of them fit into the time of one kill.
If both nodes share two cores, imports that take one core 3 s are ready only after 6 s: give a larger --after there.
Libraries that aren't installed are left out; DDPRUN_TEST_PYTHON names the Python that has them.

--check: exit status 1 when a start is more than 3 % later than with --warm off, beyond what two standard errors of the pairs
explain, or a killed worker costs more than half. 77 without PyTorch, or without any of the libraries.
"""

import argparse
import os
import statistics
import subprocess
import sys

from warm_bench import TRAIN, Training, cluster, jobs, pause, told

PYTHON = os.environ.get("DDPRUN_TEST_PYTHON") or jobs.TORCH_PYTHON
LIBRARIES = ("pyarrow", "pandas", "datasets", "transformers.trainer", "polars", "sklearn", "cv2", "lightning")


def is_installed(module):
    name = module.partition(".")[0]
    return subprocess.run([PYTHON, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({name!r}) is None)"],
                          check=False).returncode == 0


def try_once(training, way, after):
    """Seconds of a start, and of a kill unless `after` is None."""
    took, lines = training.start()
    told(way, "start", took)
    seconds = [took]
    if after is not None:
        pause(after)
        lost, lines = training.kill_one(lines)
        told(way, "kill", lost)
        seconds.append(lost)
    training.end(lines)
    return seconds


def compare(library, hosts, pairs, after, kills):
    """[ratios of starts, ratios of kills]: the default's seconds to those of --warm off, of each pair."""
    print(library, flush=True)
    ways = {way: Training(way, hosts, f"import {library}\n{TRAIN}", PYTHON) for way in ("warm", "cold")}
    try:
        for way, training in ways.items():  # files come from the disk; and what is to be imported is learned
            try_once(training, f"({way})", after)
        found = []
        for pair in range(pairs):
            order = ("warm", "cold") if pair % 2 == 0 else ("cold", "warm")
            seconds = {way: try_once(ways[way], way, after if kills else None) for way in order}
            found.append([warm / cold for warm, cold in zip(seconds["warm"], seconds["cold"])])
        return list(zip(*found))
    finally:
        for training in ways.values():
            training.close()


def run(arguments, hosts):
    libraries = list(filter(is_installed, arguments.only or LIBRARIES))
    if not libraries:
        print(f"{PYTHON} has none of {', '.join(arguments.only or LIBRARIES)}")
        return 77
    held = True
    for library in libraries:
        starts, *kills = compare(library, hosts, arguments.pairs, arguments.after, not arguments.starts)
        error = statistics.stdev(starts) / len(starts) ** 0.5 if len(starts) > 1 else 0
        start = statistics.mean(starts)
        killed = "".join(f" and kill {statistics.median(each):.3f}" for each in kills)
        print(f"{library}: start {start:.3f} (± {error:.3f}){killed} of --warm off ({len(starts)} pairs)", flush=True)
        held = held and start - 2 * error <= 1.03 and all(statistics.median(each) <= 0.5 for each in kills)
    return 1 if arguments.check and not held else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--after", type=float, default=5, metavar="SECONDS")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not is_installed("torch"):
        print(f"{PYTHON} has no torch (scripts/setup installs it)")
        return 77
    if cluster.why_not():
        return run(arguments, None)
    return cluster.run_inside(lambda: run(arguments, cluster.Cluster(2)))


if __name__ == "__main__":
    sys.exit(main())
