#!/usr/bin/env python3
"""Kills workers of C++ trainings at random instants, a thousand times; the others go on in their processes.

survivors_bench.py [--kills N] [--each N] [--seed N]

Trainings of 3 to 6 workers on one to three hosts made of namespaces, with `--each` kills each. Every second training has a
zero_stage and saves its shards beside training after every second step. A third of its kills come at a known instant of a
step (in the forward pass, in the all-reduce, before the commit, after it), a third at one of a save (before or after each
call that changes a file), the others at a random moment; a quarter of these while the others still meet after the kill
before. Trainings without a zero_stage have only kills at random moments, and two of every four heal new workers beside a
step. A killed worker's successor is forked from the program that was started ahead; every second training of either kind has
--warm off.

Good: no other worker that has trained is started anew; no step is lost but the one that was under way (with a zero_stage one
more, which is done again with the same bits); after each step all ranks have the same parameters, bit by bit; and every
checkpoint that can be loaded is whole. For the ratio, one more training has --no_in_process_restart and some kills: how much
longer its steps stand still. Exit status 1 if a training isn't good; 77 without namespaces.
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
import saving_survivors  # noqa: E402
import survivors  # noqa: E402
from bed import TimelineError  # noqa: E402

# Nodes, workers of each, backend.
SHAPES = ((1, 3, "auto"), (2, 2, "auto"), (3, 1, "gloo"), (3, 2, "auto"), (2, 3, "gloo"))
TWIN_KILLS = 8
LAUNCHES = (("--warm", "off"), ())
STAGES = ("2", "3", "1")
HEALINGS = ("auto", "beside")  # their state is small: auto is before the step


def stalls_of(training):
    """Milliseconds of the kills that came while all trained, by their moments."""
    stalls = {moment: training.stall_after(moment) for moment in training.undisturbed}
    return {moment: 1000 * stall for moment, stall in stalls.items() if stall is not None}


def describe(stalls):
    if len(stalls) < 2:
        return "too few to say"
    ordered = sorted(stalls)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return f"median {statistics.median(ordered):.0f} ms, p95 {p95:.0f} ms, at most {ordered[-1]:.0f} ms ({len(ordered)} kills)"


class Stalls(survivors.LiveTraining):
    """Takes its stalls before its journal is gone."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.stalls, self.first, self.lost = {}, [], []

    def end(self):
        self.stalls, self.first = stalls_of(self), [1000 * seconds for seconds in self.first_steps()]
        self.lost = [self.steps_lost(pid, moment) for pid, moment in self.victims]
        super().end()

    def steps_lost(self, pid, moment):
        """Steps that anybody had done before a kill and that were done again."""
        before = [line for line in self.steps() if line["t"] <= moment]
        generation = max(line["generation"] for line in before)
        after = [line for line in self.steps() if line["generation"] > generation]
        # Less than none: the others ended a step before they heard of it.
        again = max(line["step"] for line in before) + 1 - min(line["step"] for line in after) if after else 0
        return max(0, again)


class Saving(saving_survivors.SavingTraining, Stalls):
    """Killed at known instants, too."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.places = []

    def kill(self):
        place = self.kill_somewhere()
        if place is not None:
            self.places.append(place)


class Twin(Stalls):
    """All are started anew, so there is nothing to check."""

    def check(self):
        pass


class Book:
    """What all trainings have shown."""

    def __init__(self):
        self.good, self.kills, self.generations, self.lost, self.saves = 0, 0, 0, [], 0
        self.stalls, self.first, self.places = {}, {}, []

    def add(self, kind, training, kills):
        self.good += 1
        self.kills += kills
        self.generations = max(self.generations, training.outlived)
        self.lost += training.lost
        self.stalls.setdefault(kind, []).extend(training.stalls.values())
        self.first.setdefault(kind, []).extend(training.first)
        self.places += getattr(training, "places", [])
        self.saves += len({line["name"] for line in training.bed.journal.find("renamed") if "-r0" not in line["name"]})

    def show(self):
        for kind, stalls in self.stalls.items():
            print(f"{kind}: steps stood still for {describe(stalls)}; from a killed worker's successor's start to its "
                  f"first step {describe(self.first[kind])}", flush=True)
        print("of those that save, killed: " + ", ".join(f"{self.places.count(place)} in {place}"
                                                         for place in sorted(set(self.places))), flush=True)
        again = ", ".join(f"{self.lost.count(count)} x {count}" for count in sorted(set(self.lost)))
        print(f"steps done again after a kill: {again}; one process outlived {self.generations} generations; "
              f"{self.saves} checkpoints were finished", flush=True)


def make(number, rng, hosts):
    """The training of that number, and its kind."""
    nodes, per_node, backend = SHAPES[number // 2 // len(LAUNCHES) % len(SHAPES)]
    hosts = hosts if nodes > 1 else None
    launch = LAUNCHES[number // 2 % len(LAUNCHES)]
    if number % 2 == 0:
        healing = HEALINGS[number // 2 // len(LAUNCHES) % len(HEALINGS)]
        options = ("--healing", healing)
        training = Stalls(nodes, per_node, rng, hosts=hosts, backend=backend, options=options, launch=launch)
        return training, " ".join(["plain, healed", healing, *launch])
    stage = STAGES[number // 2 % len(STAGES)]
    training = Saving(nodes, per_node, rng, stage, hosts=hosts, backend=backend, launch=launch)
    return training, " ".join(["saving", *launch])


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    hosts, rng, book = cluster.Cluster(3), random.Random(arguments.seed), Book()
    trainings = -(-arguments.kills // arguments.each)
    for number in range(trainings):
        kills = min(arguments.each, arguments.kills - number * arguments.each)
        training, kind = make(number, rng, hosts)
        shape = f"training {number}, {kind}: {training.nodes} x {training.per_node} workers, {training.backend}"
        try:
            survivors.run(training, kills)
        except (survivors.Wrong, TimelineError, AssertionError) as error:
            print(f"{shape}: {error}   MISSED", flush=True)
        else:
            book.add(kind, training, kills)
            print(f"{shape}: {kills} kills: {describe(training.stalls.values())}", flush=True)
    twin = Twin(2, 2, rng, hosts=hosts, options=("--no_in_process_restart",))
    survivors.run(twin, TWIN_KILLS)
    print(f"{book.good} of {trainings} trainings good, {book.kills} kills; without the option steps stand still for "
          f"{describe(twin.stalls.values())}", flush=True)
    book.show()
    return 0 if book.good == trainings else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--each", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
