#!/usr/bin/env python3
"""Training speed, memory and start of C++ workers beside Python DDP, interleaved on this machine.

    bench/worker_bench.py [--model mlp|char_gpt] [--runs N] [--steps N] [--json FILE] [--check]

Each run starts every contender once: Python DDP over Gloo, ours over Gloo and over shared memory, with 2 workers of one
thread each, and each alone; with char_gpt also ZeRO-2 and ZeRO-3 over shared memory. Printed are the medians of all runs,
and what they promise; --check fails where a promise is broken. The build is the release one, or DDPRUN_BENCH_BIN's; Python
is the one with torch, or DDPRUN_TEST_PYTHON.
Exit status 77: there is no such build, no Python with torch, or no data.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from ports import free_port  # noqa: E402

os.environ["XDG_STATE_HOME"] = "/dev/null"  # its jobs leave no records (ddprun status --ended)
CACHE = Path(os.environ.get("DDPRUN_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddprun")
BIN = Path(os.environ.get("DDPRUN_BENCH_BIN", ROOT / "build/release/bin"))
PYTHON = Path(os.environ.get("DDPRUN_TEST_PYTHON", CACHE / "py-full/bin/python3"))
DIGITS = Path(os.environ.get("DDPRUN_DIGITS", CACHE / "digits/digits.csv.gz"))

WARM_UP_STEPS = 10


@dataclass
class Model:
    program: Path
    twin: Path
    data: Path
    steps: int
    batch: int
    least: dict  # {contender: least share of Python's samples/s}
    # Samples/s of two workers over twice those of one. None: not promised, because a step is so short (half a millisecond) that
    # its one meeting is a good part of it.
    least_scaling: float | None = None
    # For steps so short that most of their time is Gloo's (nine tenths, on machines where waking a processor takes 0.1 ms),
    # Python and ddprun are compared without Gloo's part: samples/s of one worker over those of Python's one, and the time that
    # the second worker adds to a step over Gloo, over the time that it adds in Python. None: not promised.
    least_alone: float | None = None
    most_added: float | None = None
    # True: takes options and writes a journal, as the examples do. False: takes DATA BACKEND STEPS, prints a line of JSON.
    is_example: bool = False

    def command(self, program, backend, steps, journal):
        if not self.is_example:
            return [*program, self.data, backend, steps]
        return [*program, "--data", self.data, "--backend", backend, "--steps", steps + WARM_UP_STEPS, "--journal", journal]

    def ways_to_share(self):
        """The stages of ZeRO beside each other, in buckets that are a part of the model: a block of char_gpt has 1 MiB."""
        if not self.is_example:
            return {}
        return {f"zero{stage}": ([self.program, "--zero_stage", stage, "--bucket_cap_mb", "1"], "shm", 2) for stage in ("2", "3")}


MODELS = {
    "mlp": Model(BIN / "worker_bench_mlp", ROOT / "bench/worker/mlp.py", DIGITS, 2000, 32, {"shm": 4.0},
                 least_alone=2.0, most_added=1.25),
    "char_gpt": Model(BIN / "char_gpt", ROOT / "bench/worker/char_gpt.py", Path("/usr/share/common-licenses/GPL-3"), 200, 8,
                      {"shm": 1.08, "gloo": 0.95}, least_scaling=0.90, is_example=True),
}
MOST_MEMORY = 1 / 3  # of Python's
MOST_START = 1 / 3  # exec to the end of the first step, of Python's
RUN_TIMEOUT_S = 1800


def read_journal(path):
    """What worker_bench_mlp prints, from an example's journal."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {"first": lines[0]["t"], "begin": lines[WARM_UP_STEPS - 1]["t"], "end": lines[-1]["t"], "loss": lines[-1]["loss"]}


def run(model, program, backend, workers, steps):
    """One training; the measurements of rank 0 with those that follow from them."""
    with tempfile.TemporaryDirectory(prefix="ddprun-worker-bench-") as folder:
        journal = os.path.join(folder, "journal")
        command = model.command(program, backend, steps, journal)
        started = time.monotonic()
        output, memory = wait_all(start_workers(command, workers), command)
        result = read_journal(journal) if model.is_example else json.loads(output[0].splitlines()[-1])
    result["rss"] = memory[0]
    result["start"] = result["first"] - started
    result["rate"] = steps * model.batch * workers / (result["end"] - result["begin"])
    return result


def start_workers(command, workers):
    """Workers of one thread each, on this machine, with torchrun's environment; their output goes to pipes."""
    port = free_port()
    processes = []
    for rank in range(workers):
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, "LOCAL_WORLD_SIZE": workers, "MASTER_PORT": port,
                  "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": 1}
        environment = os.environ | {name: str(value) for name, value in places.items()}
        processes.append(subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE))
    return processes


def wait_all(processes, command):
    """(What each has printed, the most memory that each had, in bytes) when all have ended well."""
    limit = threading.Timer(RUN_TIMEOUT_S, lambda: [process.kill() for process in processes])
    limit.start()
    output, memory = [], []
    for process in processes:
        output.append(process.stdout.read().decode())
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        memory.append(usage.ru_maxrss * 1024)
    limit.cancel()
    if any(process.returncode for process in processes):
        sys.exit(f"{' '.join(str(word) for word in command)}: {[process.returncode for process in processes]}")
    return output, memory


def measure(arguments):
    """{contender: {quantity: [a value a run]}}"""
    model = MODELS[arguments.model]
    contenders = {
        "python": ([PYTHON, model.twin], "gloo", 2),
        "gloo": ([model.program], "gloo", 2),
        "shm": ([model.program], "shm", 2),
        "alone": ([model.program], "shm", 1),
        "python1": ([PYTHON, model.twin], "gloo", 1),
        **model.ways_to_share(),
    }
    figures = {name: {"rate": [], "start": [], "rss": [], "loss": []} for name in contenders}
    for _ in range(arguments.runs):
        for name, (program, backend, workers) in contenders.items():
            result = run(model, program, backend, workers, arguments.steps)
            for quantity, values in figures[name].items():
                values.append(result[quantity])
    return figures


def report(arguments, figures):
    """Prints the table and the promises; whether all are kept."""
    medians = {name: {quantity: statistics.median(values) for quantity, values in of_one.items()}
               for name, of_one in figures.items()}
    load = os.getloadavg()[0]
    print(f"{arguments.model}: medians of {arguments.runs} interleaved runs of {arguments.steps} steps; load {load:.1f}")
    for name, of_one in medians.items():
        print(f"  {name:7} {of_one['rate']:10.0f} samples/s  first step after {of_one['start']:6.2f} s  "
              f"{of_one['rss'] / 2**20:5.0f} MiB  loss {of_one['loss']:.6f}")
    python = medians["python"]
    promises = [(f"{name}: samples/s over Python's", medians[name]["rate"] / python["rate"], ">=", least)
                for name, least in MODELS[arguments.model].least.items()]
    model, rate = MODELS[arguments.model], {name: of_one["rate"] for name, of_one in medians.items()}
    added = (2 / rate["gloo"] - 1 / rate["alone"]) / (2 / rate["python"] - 1 / rate["python1"])
    for what, found, relation, bound in (
            ("2 workers over twice 1, shm", rate["shm"] / (2 * rate["alone"]), ">=", model.least_scaling),
            ("alone: samples/s over Python's", rate["alone"] / rate["python1"], ">=", model.least_alone),
            ("gloo: what the 2nd worker adds to a step, over Python's", added, "<=", model.most_added)):
        if bound is None:
            print(f"         {what}: {found:.2f}")
        else:
            promises.append((what, found, relation, bound))
    if "zero3" in medians:
        share = medians["zero3"]["rate"] / medians["zero2"]["rate"]
        print(f"         ZeRO-3: samples/s over ZeRO-2's: {share:.2f}")
    promises.append(("shm: memory over Python's", medians["shm"]["rss"] / python["rss"], "<=", MOST_MEMORY))
    promises.append(("shm: start over Python's", medians["shm"]["start"] / python["start"], "<=", MOST_START))
    kept = True
    for what, found, relation, bound in promises:
        holds = found >= bound if relation == ">=" else found <= bound
        kept = kept and holds
        print(f"  {'kept  ' if holds else 'BROKEN'} {what}: {found:.2f} {relation} {bound:.2f}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"load": load, "figures": figures}, indent=1), encoding="utf-8")
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, help="measured ones; default: the model's")
    parser.add_argument("--json", help="every figure, to this file")
    parser.add_argument("--check", action="store_true", help="exit status 1 where a promise is broken")
    arguments = parser.parse_args()
    model = MODELS[arguments.model]
    arguments.steps = arguments.steps or model.steps
    for needed in (model.program, PYTHON, model.twin, model.data):
        if not needed.exists():
            print(f"skipped: there is no {needed}")
            return 77
    kept = report(arguments, measure(arguments))
    return 0 if kept or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
