#!/usr/bin/env python3
"""How often `ddprun test` names what is wrong with eight namespace hosts, and how soon.

preflight_bench.py [--trials 50] [--seed N] [--keep FOLDER]: one slow node, one lossy link, one cut link, two bad nodes, all
nodes equally slow, nothing wrong; so many times each, at places that the seed chooses. The endpoint's host n1 is among the slow
nodes and has lossy links, too. A cut link from or to n1 keeps a node away, which is a situation of its own: the others wait
10 s, then are checked. Exit status 1 if a verdict is wrong or takes longer than 5 s; 77 without namespaces.
"""

import argparse
import json
import os
import random
import statistics
import sys

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(_ROOT, "tests", "support"), os.path.join(_ROOT, "tests", "cluster")]

import network_check as check  # noqa: E402
from bed import Bed  # noqa: E402
from cluster import Cluster, run_inside  # noqa: E402

HOSTS = 8
CUT_OFF = "cut to or from n1"


def situations(rng):
    """(name, what is done to the hosts), with fresh places."""
    a, b = rng.sample(range(1, HOSTS + 1), 2)
    c, d = rng.sample(range(2, HOSTS + 1), 2)
    return [("one slow node", check.slow_node(a)), ("one lossy way", check.lossy_way(a, b, rng.choice((5, 10, 20)))),
            ("one cut way", check.cut_way(c, d)), ("two bad nodes", check.two_bad_nodes(a, b)),
            ("all equally slow", check.all_slow(HOSTS)), ("nothing wrong", check.nothing),
            (CUT_OFF, check.cut_from_endpoint(c, rng.random() < 0.5))]


def trial(cluster, spoil, wait, keep):
    """(right, seconds, what was said otherwise). `keep`: path for the report of a wrong verdict, "" = none."""
    bed = Bed(cluster)
    try:
        expected = spoil(cluster)
        report, statuses = check.examine(bed, HOSTS, wait=wait)
        found = check.accusations(report)
        right = found == expected and statuses == [1 if expected else 0] * HOSTS
        if keep and not right:
            with open(keep, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
        return right, report["seconds"], "" if right else f"{found} in place of {expected}, statuses {statuses}"
    finally:
        cluster.heal()
        bed.stop()
        bed.close()


def run(options):
    rng = random.Random(options.seed)
    cluster = Cluster(HOSTS)
    results = {}
    for number in range(options.trials):
        for name, spoil in situations(rng):
            keep = options.keep and os.path.join(options.keep, f"{number}-{name.replace(' ', '-')}.json")
            right, seconds, why = trial(cluster, spoil, 10 if name == CUT_OFF else None, keep)
            results.setdefault(name, []).append((right, seconds))
            if why:
                print(f"trial {number}, {name}: {why}", flush=True)
    print(f"{'situation':<18} {'right':>9} {'median s':>9} {'longest s':>9}   (seed {options.seed})")
    for name, trials in results.items():
        times = [seconds for _, seconds in trials]
        count = f"{sum(right for right, _ in trials)} / {len(trials)}"
        print(f"{name:<18} {count:>9} {statistics.median(times):>9.2f} {max(times):>9.2f}")
    return 0 if all(right and seconds <= 5 for trials in results.values() for right, seconds in trials) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", default="", help="for the reports of wrong verdicts")
    options = parser.parse_args()
    return run_inside(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
