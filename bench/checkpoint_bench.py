#!/usr/bin/env python3
"""How long a checkpoint of 256 MiB keeps training (SaveAsync beside PyTorch's async_save and one memcpy); how fast it comes back.

    bench/checkpoint_bench.py [--runs N] [--saves N] [--json FILE] [--check]

Each run starts both; printed are the medians of all runs and what they promise. What comes back isn't in the page cache: it
can't take less than the disk's read(2) of it and then, the checksum known, one memcpy to its place, both timed in the same run
(each of two workers of a host copies, and they share the memory's speed). They read it once. --check fails where a promise is
broken. The build is the release one, or DDPRUN_BENCH_BIN's; Python is the one with torch, or DDPRUN_TEST_PYTHON.
Exit status 77: there is no such build, or no Python with torch.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ["XDG_STATE_HOME"] = "/dev/null"  # its jobs leave no records (ddprun status --ended)
CACHE = Path(os.environ.get("DDPRUN_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprun")
BIN = Path(os.environ.get("DDPRUN_BENCH_BIN", ROOT / "build/release/bin"))
PYTHON = Path(os.environ.get("DDPRUN_TEST_PYTHON", CACHE / "py-full/bin/python3"))
MOST_STALL = 1.2  # of one memcpy
LEAST_SPEED = 0.8  # of a read and a copy's
MOST_COPIES = 1.05  # of the file, for all workers of a host


def measure(command, saves):
    with tempfile.TemporaryDirectory(prefix="ddprun-checkpoint-bench-") as folder:
        done = subprocess.run([*command, folder, str(saves)], check=True, text=True, stdout=subprocess.PIPE, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--saves", type=int, default=7, help="checkpoints a run, after a first one")
    parser.add_argument("--json")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    program = BIN / "worker_bench_checkpoint"
    if not program.exists() or not PYTHON.exists():
        print(f"skipped: {program} or {PYTHON} isn't there")
        return 77
    ours, theirs, pairs = [], [], []
    for _ in range(options.runs):
        ours.append(measure([program], options.saves))
        pairs.append(measure([BIN / "ddprun", "--no_python", "--nproc_per_node", "2", program], options.saves))
        theirs.append(measure([PYTHON, ROOT / "bench/worker/checkpoint.py"], options.saves))
    result = {
        "ddprun": {name: statistics.median(run[name] for run in ours) for name in ours[0]},
        "torch": {name: statistics.median(run[name] for run in theirs) for name in theirs[0]},
        # Ratios within one run each, because a machine's speed drifts.
        "stall_of_copy": statistics.median(run["stall"] / run["copy"] for run in ours),
        "stall_of_torchs": statistics.median(run["stall"] / other["stall"] for run, other in zip(ours, theirs)),
    }
    for name, runs in (("restore", ours), ("pair_restore", pairs)):
        result[name + "_speed"] = statistics.median((run["read"] + run["copy"]) / run["restore"] for run in runs)
        result[name + "_of_disk"] = statistics.median(run["read"] / run["restore"] for run in runs)
        result[name + "_copies"] = statistics.median(run["copies_read"] for run in runs)
    print(f"one memcpy of 256 MiB      {1e3 * result['ddprun']['copy']:7.1f} ms")
    for name in ("stall", "first_stall"):
        print(f"{name:12s} ddprun {1e3 * result['ddprun'][name]:7.1f} ms   torch {1e3 * result['torch'][name]:7.1f} ms")
    print(f"Save, which waits          {1e3 * result['ddprun']['save']:7.1f} ms")
    cold = result["ddprun"]
    print(f"Restore, not in the cache  {1e3 * cold['restore']:7.1f} ms   the disk {1e3 * cold['read']:7.1f} ms")
    holds = result["stall_of_copy"] <= MOST_STALL
    print(f"SaveAsync keeps training for {result['stall_of_copy']:.2f} times one memcpy (promised: at most {MOST_STALL}): "
          f"{'holds' if holds else 'BROKEN'}; {result['stall_of_torchs']:.2f} times torch's async_save")
    for name, workers in (("restore", "one worker"), ("pair_restore", "two workers of a host")):
        speed, copies = result[name + "_speed"], result[name + "_copies"]
        good = copies <= MOST_COPIES and speed >= LEAST_SPEED
        print(f"Restore by {workers}: {speed:.2f} of the speed of the disk and one memcpy (promised: at least {LEAST_SPEED}); "
              f"{copies:.2f} copies read (at most {MOST_COPIES}): {'holds' if good else 'BROKEN'}; "
              f"{result[name + '_of_disk']:.2f} of the disk's alone")
        holds = holds and good
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if options.check and not holds else 0


if __name__ == "__main__":
    sys.exit(main())
