#!/usr/bin/env python3
"""How soon a job with its record in etcd goes on after the machine of its rendezvous service is lost.

etcd_takeover_bench.py [--trials N] [--seed N]

Three namespace hosts, each with a member of a real etcd and an agent. Each trial is a training that saves every step; the host
that has the service loses its power, in turn with etcd's leader and with another member, and isn't replaced. Good: the next
generation, of two nodes, is formed within the TTL of the service's lease and 800 ms (with etcd's leader one TTL more), goes
on at the step that was saved, and finishes. Exit status 1 if a trial isn't good; 77 without namespaces or etcd.
"""

import argparse
import os
import random
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
from etcd import EtcdCluster, etcd_is_there  # noqa: E402
from takeover import EtcdNodeLost, run_trials  # noqa: E402


def run(arguments):
    print(f"seed {arguments.seed}", flush=True)
    hosts = cluster.Cluster(3)
    etcd = EtcdCluster(hosts=hosts)
    rng = random.Random(arguments.seed)
    try:
        trials = (EtcdNodeLost(hosts, etcd, rng, number % 2 == 1) for number in range(arguments.trials))
        return run_trials(trials, arguments.trials, EtcdNodeLost.bound, "next generation")
    finally:
        etcd.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    if not etcd_is_there():
        print("there is no etcd here (Debian's etcd-server and etcd-client)")
        return 77
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
