#!/usr/bin/env python3
"""torchrun's and ddprun's --tee side by side: a flood of lines from one worker, in turns in one run.

log_bench.py [--repetitions N] [--quick] [--check] [--json FILE]

Each run tees a flood of 100-byte lines to a log file and to a console that takes everything at once
(/dev/null: the launcher is measured, not the disk under the console). Throughput counts from the
worker's first write to the launcher's end; memory is the most that the launcher (and its helpers)
held. --check fails when a promise of docs/TESTING.md ("Performance") is broken.
"""

import argparse
import datetime
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
os.environ["XDG_STATE_HOME"] = "/dev/null"  # its jobs leave no records (ddprun status --ended)
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
TORCHRUN = os.path.join(CACHE, "py-full", "bin", "torchrun")
DDPRUN = os.environ.get("DDPRUN_BIN", os.path.join(ROOT, "build", "release", "bin", "ddprun"))
FLOOD = """import os, sys, time
block = memoryview((b"x" * 99 + b"\\n") * 10000)
with open(sys.argv[2], "w") as began:
    began.write(str(time.monotonic()))
for _ in range(int(sys.argv[1])):
    view = block
    while view:
        view = view[os.write(1, view):]
"""
RATIO_LEAST = 5.0
MEMORY_MIB_MOST = 64.0


def run(launcher, megabytes):
    """{"mb_per_s", "memory_mib"} of one flood; checks that the log file is whole."""
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as folder:
        script, began = os.path.join(folder, "flood.py"), os.path.join(folder, "began")
        with open(script, "w", encoding="utf-8") as sink:
            sink.write(FLOOD)
        logs = os.path.join(folder, "logs")
        with open(os.path.join(folder, "stderr"), "w+b") as errors:
            with subprocess.Popen([launcher, "--standalone", "--nproc_per_node", "1", "--tee", "1", "--log_dir", logs, script,
                                   str(megabytes), began], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                                  env={**os.environ, "PYTHON_EXEC": sys.executable}) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            ended = time.monotonic()
            if process.returncode != 0:
                errors.seek(0)
                raise RuntimeError(f"{launcher} ended with {process.returncode}: {errors.read().decode(errors='replace')}")
        log, = glob.glob(os.path.join(logs, "*", "attempt_0", "0", "stdout.log"))
        if os.path.getsize(log) != megabytes * 1_000_000:
            raise RuntimeError(f"{launcher} kept {os.path.getsize(log)} of {megabytes} MB")
        with open(began, encoding="utf-8") as source:
            seconds = ended - float(source.read())
        return {"mb_per_s": megabytes / seconds, "memory_mib": usage.ru_maxrss / 1024}


def measure(repetitions, megabytes):
    """{launcher: {figure: [values]}}; the launchers take turns."""
    results = {}
    for _ in range(repetitions):
        for name, launcher in (("torchrun", TORCHRUN), ("ddprun", DDPRUN)):
            for figure, value in run(launcher, megabytes).items():
                results.setdefault(name, {}).setdefault(figure, []).append(value)
    # At full length, for memory: what grows with the flood shows.
    results["ddprun"]["memory_mib"].append(run(DDPRUN, 1000)["memory_mib"])
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="three repetitions")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is broken")
    parser.add_argument("--json", default=os.path.join(ROOT, "bench", "results", "log.json"))
    arguments = parser.parse_args()
    if not os.access(DDPRUN, os.X_OK):
        sys.exit(f"error: {DDPRUN} is not built: cmake --preset release && cmake --build build/release --target ddprun")
    if not os.access(TORCHRUN, os.X_OK):
        print(f"{TORCHRUN} is not there (scripts/setup installs it)")
        return 77
    megabytes = 200
    results = measure(3 if arguments.quick else arguments.repetitions, megabytes)
    speed = {name: statistics.median(figures["mb_per_s"]) for name, figures in results.items()}
    memory = {name: max(figures["memory_mib"]) for name, figures in results.items()}
    ratio = speed["ddprun"] / speed["torchrun"]
    print(f"{'':<28}{'torchrun':>12}{'ddprun':>12}{'ratio':>9}")
    print(f"{'tee, MB/s (median)':<28}{speed['torchrun']:>12.0f}{speed['ddprun']:>12.0f}{ratio:>8.1f}x")
    print(f"{'memory, MiB (most)':<28}{memory['torchrun']:>12.1f}{memory['ddprun']:>12.1f}")
    os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
    with open(arguments.json, "w", encoding="utf-8") as sink:
        json.dump({"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "megabytes": megabytes,
                   "results": results}, sink, indent=1)
    broken = []
    if ratio < RATIO_LEAST:
        broken.append(f"tee at least {RATIO_LEAST:g} times faster than torchrun's: {ratio:.1f}")
    if memory["ddprun"] >= MEMORY_MIB_MOST:
        broken.append(f"memory below {MEMORY_MIB_MOST:g} MiB for 1 GB: {memory['ddprun']:.1f}")
    for line in broken:
        print(f"BROKEN PROMISE: {line}")
    return 1 if arguments.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
