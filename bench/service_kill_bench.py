#!/usr/bin/env python3
"""What kill -9 of the rendezvous service costs a training that also loses a worker.

service_kill_bench.py [--trials N] [--seed N]

Each trial is a job of three nodes that save every step. At one random moment the service is killed, and at another one a worker.
Good: the job finishes with one restart, for the worker's death; no step is repeated or left out but the one that was under way
then; and every agent is connected again within 300 ms after the next service listens. Exit status 1 if a trial isn't good.
"""

import argparse
import os
import random
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from takeover import BACK_WITHIN, ServiceKill, run_trials  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    rng = random.Random(arguments.seed)
    trials = (ServiceKill(rng) for _ in range(arguments.trials))
    return run_trials(trials, arguments.trials, lambda _: BACK_WITHIN, "all agents back")


if __name__ == "__main__":
    sys.exit(main())
