#!/usr/bin/env python3
"""Workers of C++ trainings are killed at random moments, a thousand times, and who lives goes on in its process.

survivors_bench.py [--kills N] [--each N] [--seed N]

Trainings of 3 to 6 workers on one to three hosts of namespaces, with `--each` kills each: in the middle of a step, or while
the others still meet after the kill before. Good: nobody else is started anew who has trained, no step is lost but the one that
was under way, and all ranks have the same parameters, bit by bit, after each. Every second one has --warm on: who takes a killed
one's place is forked from the program that was started ahead. Beside them one training without --in_process_restart has some
kills, too: how much longer its steps stand still is the ratio. Exit status 1 when a training isn't good; 77 without namespaces.
"""

import argparse
import math
import os
import random
import statistics
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
import survivors  # noqa: E402
from bed import TimelineError  # noqa: E402

# Nodes, workers of each, backend.
SHAPES = ((1, 3, "auto"), (2, 2, "auto"), (3, 1, "gloo"), (3, 2, "auto"), (2, 3, "gloo"))
TWIN_KILLS = 8
LAUNCHES = ((), ("--warm", "on"))


def stalls_of(training):
    """Milliseconds of the kills that came while all trained."""
    return [1000 * stall for stall in map(training.stall_after, training.undisturbed) if stall is not None]


def describe(stalls):
    if len(stalls) < 2:
        return "too few to say"
    ordered = sorted(stalls)
    return f"median {statistics.median(ordered):.0f} ms, p95 {ordered[math.ceil(0.95 * len(ordered)) - 1]:.0f} ms"


class Stalls(survivors.LiveTraining):
    """Takes its stalls before its journal is gone."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.stalls, self.first = [], []

    def end(self):
        self.stalls, self.first = stalls_of(self), [1000 * seconds for seconds in self.first_steps()]
        super().end()


class Twin(Stalls):
    """All are started anew, so there is nothing to check."""

    def check(self):
        pass


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    hosts, rng = cluster.Cluster(3), random.Random(arguments.seed)
    good, done = 0, 0
    stalls, first = {launch: [] for launch in LAUNCHES}, {launch: [] for launch in LAUNCHES}
    trainings = -(-arguments.kills // arguments.each)
    for number in range(trainings):
        launch = LAUNCHES[number % len(LAUNCHES)]
        nodes, per_node, backend = SHAPES[number // len(LAUNCHES) % len(SHAPES)]
        kills = min(arguments.each, arguments.kills - done)
        training = Stalls(nodes, per_node, rng, hosts=hosts if nodes > 1 else None, backend=backend, launch=launch)
        shape = f"training {number}: {nodes} x {per_node} workers, {' '.join((backend, *launch))}"
        try:
            survivors.run(training, kills)
        except (survivors.Wrong, TimelineError, AssertionError) as error:
            print(f"{shape}: {error}   MISSED", flush=True)
        else:
            good += 1
            stalls[launch] += training.stalls
            first[launch] += training.first
            outlived = f"one worker outlived {training.outlived} of them"
            print(f"{shape}: {kills} kills, {outlived}: {describe(training.stalls)}", flush=True)
        done += kills
    twin = Twin(2, 2, rng, hosts=hosts, options=())
    survivors.run(twin, TWIN_KILLS)
    cold, warm = LAUNCHES
    print(f"{good} of {trainings} trainings good, {done} kills; steps stood still for {describe(stalls[cold])}; with --warm on "
          f"{describe(stalls[warm])}; without the option {describe(twin.stalls)}", flush=True)
    print(f"from the start of who took a killed one's place to its first step: {describe(first[cold])}; with --warm on "
          f"{describe(first[warm])}", flush=True)
    return 0 if good == trainings else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--each", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
