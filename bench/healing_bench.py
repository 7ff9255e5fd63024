#!/usr/bin/env python3
"""How long workers stand still because a new one needs their state: beside a step, and before it.

healing_bench.py [--kills N] [--rounds N] [--state_mb N] [--workers N] [--nodes N] [--backend NAME] [--seed N]

C++ trainings of one model with so many MB of state (parameters and momentum), with --healing before and --healing beside in
turn. A worker of each training is killed again and again. Times begin when its successor has met the others, without the
successor's start. Prints the medians until the others begin their forward pass, and until their step is done, and the
ratios. Good: as in survivors_bench.py, and with --healing beside the forward pass begins sooner. Exit status 1 otherwise.
"""

import argparse
import math
import os
import random
import statistics
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import survivors  # noqa: E402

WAYS = ("before", "beside")
BYTES_PER_NUMBER = 8  # a parameter and its momentum


class Healed(survivors.LiveTraining):
    """Takes its times before its journal is gone."""

    def __init__(self, way, width, arguments, rng):
        options = ("--healing", way, "--backend", arguments.backend)
        per_node = arguments.workers // arguments.nodes
        super().__init__(arguments.nodes, per_node, rng, options=options)
        self.bed.environment["SESSION_PROBE_WIDTH"] = str(width)
        self.to_forward, self.to_step, self.usual = [], [], []

    def end(self):
        self.measure()
        super().end()

    def measure(self):
        lines = self.bed.journal.lines
        begun = {}  # by generation: when its new worker had met the others
        for line in lines:
            if line["event"] == "prepare":
                begun.setdefault(line["generation"], []).append((line["t"], line["pid"]))
        for generation, new in sorted(begun.items()):
            if len(new) != 1:  # the first one, or one that was disturbed
                continue
            met, newcomer = new[0]
            first = {}
            for line in lines:
                if line["event"] in ("forward", "step") and line["generation"] == generation and line["pid"] != newcomer:
                    first.setdefault((line["event"], line["pid"]), line["t"])
            for event, times in (("forward", self.to_forward), ("step", self.to_step)):
                of_event = [t for (kind, _), t in first.items() if kind == event]
                if of_event:
                    times.append(1000 * (max(of_event) - met))
        for pid in {line["pid"] for line in lines if line["event"] == "step"}:
            steps = self.steps(pid)
            self.usual += [1000 * (b["t"] - a["t"]) for a, b in zip(steps, steps[1:]) if a["generation"] == b["generation"]]


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    rng = random.Random(arguments.seed)
    width = math.isqrt(arguments.state_mb * 1_000_000 // BYTES_PER_NUMBER)
    to_forward, to_step, usual = {way: [] for way in WAYS}, {way: [] for way in WAYS}, []
    for _ in range(arguments.rounds):
        for way in WAYS:
            training = Healed(way, width, arguments, rng)
            survivors.run(training, arguments.kills)
            to_forward[way] += training.to_forward
            to_step[way] += training.to_step
            usual += training.usual
    print(f"{arguments.workers} workers on {arguments.nodes} nodes, {arguments.state_mb} MB of state, a usual step takes "
          f"{statistics.median(usual):.0f} ms")
    for what, times in (("begin their forward pass", to_forward), ("have done the step", to_step)):
        before, beside = (statistics.median(times[way]) for way in WAYS)
        print(f"until the others {what}: before {before:.0f} ms, beside {beside:.0f} ms ({len(times['before'])} and "
              f"{len(times['beside'])} new workers), {beside / before:.2f} times", flush=True)
    return 0 if statistics.median(to_forward["beside"]) < statistics.median(to_forward["before"]) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--state_mb", type=int, default=256)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
