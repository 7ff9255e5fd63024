#!/usr/bin/env python3
"""How soon a job goes on when its rendezvous service has lost its machine, and another machine takes over the address.

host_lost_bench.py [--trials N] [--absence SECONDS] [--seed N]

Three namespace hosts and a fourth, with a --state_dir that they share. Each trial is a training that saves every step; the host
of the service loses its power. After some seconds an agent is started at its address, in turn on the same machine and on
another one with a name of its own. Good: the next generation is formed within 1 s from the start of that agent, goes on at
the step that was saved, and finishes. --absence: how long the address is dead, instead of 1.5 to 4 s. Exit status 1 if a
trial isn't good; 77 without namespaces.
"""

import argparse
import os
import random
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
from takeover import REPLACED_WITHIN, HostLost, run_trials  # noqa: E402


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    hosts = cluster.Cluster(4)
    rng = random.Random(arguments.seed)
    trials = (HostLost(hosts, rng, number % 2 == 1, arguments.absence) for number in range(arguments.trials))
    return run_trials(trials, arguments.trials, lambda _: REPLACED_WITHIN, "next generation")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--absence", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
