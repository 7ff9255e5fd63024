#!/usr/bin/env python3
"""How fast one Python client sets and gets, at the agent's store and at torch's own server, in turns.

    ddprun --nproc_per_node 2 bench/store_bench.py [ROUNDS]

Worker 1 hosts torch's server, so that each server has a process of its own; worker 0 measures.
"""

import datetime
import os
import sys
import time

import torch.distributed as dist

KEYS = 2000


def rate(store, name):
    """Operations a second, half of them set, half get (which asks twice: is it there, what is it)."""
    started = time.perf_counter()
    for i in range(KEYS):
        key = f"{name}/{i % 100}"
        store.set(key, "0123456789abcdef" * 4)
        store.get(key)
    return 2 * KEYS / (time.perf_counter() - started)


def main():
    rank, rounds = int(os.environ["RANK"]), int(sys.argv[1]) if len(sys.argv) > 1 else 7
    timeout = datetime.timedelta(seconds=120)
    ours = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timeout)
    if rank == 1:
        theirs = dist.TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False)
        ours.set("torch's port", str(theirs.port))
        ours.wait(["measured"])
        return
    port = int(ours.get("torch's port"))
    theirs = dist.TCPStore("127.0.0.1", port, None, False, timeout)
    rates = {"agent's store": [], "torch's server": []}
    for turn in range(rounds):
        for name, store in (("agent's store", ours), ("torch's server", theirs)):
            rates[name].append(rate(store, f"turn {turn}"))
    for name, values in rates.items():
        print(f"{name:15} {sorted(values)[rounds // 2]:8.0f} operations/s (median of {rounds} turns)")
    ratios = sorted(a / b for a, b in zip(*rates.values()))
    print(f"ratio           {ratios[rounds // 2]:8.2f} (median), {ratios[0]:.2f} to {ratios[-1]:.2f}")
    ours.set("measured", "")


if __name__ == "__main__":
    main()
