#!/usr/bin/env python3
"""torchrun and ddprun side by side, in one run and in turns: start, restart, notice, memory.

launch_bench.py [--repetitions N] [--quick] [--check] [--torchrun FILE] [--other FILE] [--json FILE]

With --other, a second ddprun takes its turn too, such as that of a wheel.

Prints a table of medians and ratios, and writes everything to FILE (bench/results/launch.json). --check
fails when a promise of docs/TESTING.md ("Performance") is broken.
"""

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from ports import free_port  # noqa: E402
from timeline import TAG_VARIABLE, Follower, Process, kill_tagged, memory_kib  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun")
TORCHRUN = [os.path.join(CACHE, "py-full", "bin", "torchrun")]
DDPRUN = [os.environ.get("DDPRUN_BIN", os.path.join(ROOT, "build", "release", "bin", "ddprun"))]
OTHER = []  # --other
WORKER = os.path.join(ROOT, "tests", "support", "worker.py")
PATIENCE = 120.0


class Job:
    """One job of one launcher on loopback, with `nodes` agents."""

    def __init__(self, launcher, nodes, nproc, worker, options=()):
        self.launcher = launcher
        self.nodes = nodes
        self.tag = uuid.uuid4().hex
        self.folder = tempfile.TemporaryDirectory(prefix="ddprun-bench-")
        self.follower = Follower()
        self.journal = self.follower.follow(os.path.join(self.folder.name, "journal.jsonl"))
        self.events = self.follower.follow(os.path.join(self.folder.name, "events.jsonl"))
        port = free_port()
        self.started = time.monotonic()
        self.agents = []
        for node in range(nodes):
            command = [*launcher, *self.place(node, port), "--nproc_per_node", str(nproc), *options]
            if launcher is not TORCHRUN:
                command += ["--event_log", self.events.path]
            command += [word.replace("JOURNAL", self.journal.path) for word in worker]
            self.agents.append(Process(
                f"node {node}", command, os.path.join(self.folder.name, f"{node}.out"),
                {**os.environ, TAG_VARIABLE: self.tag, "PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1"}))

    def place(self, node, port):
        if self.nodes == 1:
            return ["--standalone"]
        return ["--nnodes", str(self.nodes), "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}", "--rdzv_id",
                "bench", "--rdzv_conf", f"is_host={int(node == 0)}"]

    def workers(self, count, after=0.0):
        """The journal lines of `count` workers that began after `after`."""
        return self.follower.wait(
            lambda: (lambda lines: lines if len(lines) >= count else None)(self.journal.find("worker", after)),
            f"{count} workers", PATIENCE, [agent for agent in self.agents if not agent.ended()])

    def event(self, name, after, **fields):
        return self.follower.wait(lambda: self.events.find(name, after, **fields), name, PATIENCE)

    def wait_all(self):
        for agent in self.agents:
            status = agent.wait(PATIENCE)
            if status != 0:
                raise RuntimeError(f"{agent.name} of {self.launcher[0]} ended with {status}:\n{agent.text()}")
        return time.monotonic() - self.started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        kill_tagged(self.tag)
        for agent in self.agents:
            agent.close()
        self.follower.close()
        self.folder.cleanup()


# -------------------------------------------------------------------- what is measured

def start(launcher, nodes, nproc):
    """Seconds from the launchers' start until all of them have ended, and until the last worker was started; the workers do
    nothing."""
    with Job(launcher, nodes, nproc, ["--no_python", "true"]) as job:
        figures = {"total": job.wait_all()}
        if launcher is not TORCHRUN:
            figures["own_share"] = max(line["t"] for line in job.event("worker_started", 0)) - job.started
        return figures


def start_python(launcher, nodes, nproc):
    """Seconds from the launchers' start until the last worker (a Python script) runs its first line."""
    with Job(launcher, nodes, nproc, [WORKER, "JOURNAL"]) as job:
        return {"first_line": max(line["t"] for line in job.workers(nodes * nproc)) - job.started}


def restart(launcher, nodes, nproc):
    """Seconds from the kill of a worker until the last new worker runs its first line."""
    with Job(launcher, nodes, nproc, [WORKER, "JOURNAL"], ["--max_restarts", "3"]) as job:
        before = job.workers(nodes * nproc)
        victim = max(before, key=lambda line: line["rank"])
        fault = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)
        after = job.workers(nodes * nproc, after=fault)
        figures = {"total": max(line["t"] for line in after) - fault}
        if launcher is not TORCHRUN:
            figures.update(own_share(job, fault, nodes))
        return figures


def own_share(job, fault, nodes):
    """ddprun's own part by its timeline: fault → all groups asked to stop, last one empty → all started."""
    stops = [line["t"] for line in job.event("stop_begin", fault)]
    noticed = job.event("worker_exit", fault)[0]
    empty = [line["t"] for line in job.event("group_empty", fault)]
    begun_lines = job.follower.wait(
        lambda: (lambda lines: lines if len(lines) >= nodes else None)(job.events.find("worker_started", fault)),
        "worker_started", PATIENCE)
    told = max([float(noticed.get("t_seen", noticed["t"])), *stops]) - fault
    begun = max(line["t"] for line in begun_lines) - max(empty)
    return {"noticed": float(noticed.get("t_seen", noticed["t"])) - fault, "own_share": told + begun,
            "dying": max(empty) - fault - told}


def notice_agent(launcher, nodes, nproc):
    """Seconds from the kill of an agent that doesn't host until the service says that its node is lost."""
    with Job(launcher, nodes, nproc, [WORKER, "JOURNAL"], ["--max_restarts", "3"]) as job:
        job.workers(nodes * nproc)
        fault = time.monotonic()
        job.agents[-1].signal(signal.SIGKILL)
        return {"noticed": job.event("node_lost", fault)[0]["t"] - fault}


def memory(launcher, nodes, nproc):
    """Resident KiB of the launcher's processes on the hosting node while workers run."""
    with Job(launcher, nodes, nproc, [WORKER, "JOURNAL"]) as job:
        workers = {line["pid"] for line in job.workers(nodes * nproc)}
        agent = job.agents[0]
        figures = {}
        figures["agent_rss"], figures["agent_pss"] = memory_kib(agent.pid)
        if launcher is TORCHRUN:
            return figures
        services = {line["pid"] for line in job.event("generation", 0)}
        for pid in children(agent.pid) - workers:
            name = "service" if pid in services else "keeper"
            figures[f"{name}_rss"], figures[f"{name}_pss"] = memory_kib(pid)
        return figures


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as source:
        return {int(word) for word in source.read().split()}


# -------------------------------------------------------------------- running and telling

# (name, function, nodes, workers a node, also torchrun)
CELLS = [
    ("start 1x1, true", start, 1, 1, True),
    ("start 1x2, true", start, 1, 2, True),
    ("start 2x1, true", start, 2, 1, True),
    ("start 4x1, true", start, 4, 1, True),
    ("start 16x1, true", start, 16, 1, False),
    ("start 1x2, python", start_python, 1, 2, True),
    ("start 2x1, python", start_python, 2, 1, True),
    ("killed worker to restarted, 2x1", restart, 2, 1, True),
    ("killed agent to noticed, 2x1", notice_agent, 2, 1, False),
    ("memory, 2x1", memory, 2, 1, True),
]


def measure(repetitions, torchrun):
    """{cell: {launcher: {figure: [values]}}}; the launchers take turns."""
    results = {}
    for name, function, nodes, nproc, both in CELLS:
        cell = results.setdefault(name, {})
        for _ in range(repetitions):
            for launcher, label in ((TORCHRUN, "torchrun"), (DDPRUN, "ddprun"), (OTHER, "other")):
                if not launcher or label == "torchrun" and not (both and torchrun):
                    continue
                for figure, value in function(launcher, nodes, nproc).items():
                    cell.setdefault(label, {}).setdefault(figure, []).append(value)
        print(f"    {name}: done", flush=True)
    return results


def median(results, cell, label, figure):
    values = results.get(cell, {}).get(label, {}).get(figure)
    return statistics.median(values) if values else None


def print_table(results):
    print(f"\n{'':<44}{'torchrun':>12}{'ddprun':>12}{'ratio':>9}" + (f"{'other':>12}{'of ddprun':>11}" if OTHER else ""))
    for cell, by_launcher in results.items():
        for figure in by_launcher.get("ddprun", {}):
            ours, theirs = median(results, cell, "ddprun", figure), median(results, cell, "torchrun", figure)
            is_memory = figure.endswith(("rss", "pss"))
            unit = (lambda value: f"{value / 1024:.1f} MiB") if is_memory else (lambda value: f"{value * 1000:.1f} ms")
            ratio = f"{theirs / ours:.1f} x" if theirs and ours else ""
            other = median(results, cell, "other", figure)
            beside = f"{unit(other):>12}{100 * other / ours:>9.0f} %" if other and ours else ""
            print(f"{cell + ': ' + figure:<44}{unit(theirs) if theirs else '–':>12}{unit(ours):>12}{ratio:>9}{beside}")


def broken_promises(results):
    """What issue and documents promise and this run doesn't show."""
    broken = []

    def promise(what, value, holds):
        if value is None or not holds(value):
            broken.append(f"{what}: {'not measured' if value is None else f'{value:.3f}'}")

    def ratio(cell, figure):
        ours, theirs = median(results, cell, "ddprun", figure), median(results, cell, "torchrun", figure)
        return theirs / ours if ours and theirs else None

    for cell in ("start 1x2, true", "start 2x1, true"):
        promise(f"{cell} at least 20 times shorter", ratio(cell, "total"), lambda value: value >= 20)
    promise("own share of a start of one worker at most 15 ms", median(results, "start 1x1, true", "ddprun", "own_share"),
            lambda value: value <= 0.015)
    promise("16 agents on this machine within 0.35 s", median(results, "start 16x1, true", "ddprun", "total"),
            lambda value: value <= 0.350)
    promise("agent's resident memory at most 1/20", ratio("memory, 2x1", "agent_rss"), lambda value: value >= 20)
    promise("agent's resident memory at most 16 MB", median(results, "memory, 2x1", "ddprun", "agent_rss"),
            lambda value: value * 1024 <= 16e6)
    promise("own share of a restart at most 50 ms", median(results, "killed worker to restarted, 2x1", "ddprun", "own_share"),
            lambda value: value <= 0.050)
    promise("killed agent noticed within 200 ms", median(results, "killed agent to noticed, 2x1", "ddprun", "noticed"),
            lambda value: value <= 0.200)
    return broken


def peer_version():
    """Of the torch that torchrun is of."""
    python = os.path.join(os.path.dirname(TORCHRUN[0]), "python3")
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="three repetitions")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a promise is broken")
    parser.add_argument("--json", default=os.path.join(ROOT, "bench", "results", "launch.json"))
    parser.add_argument("--torchrun", metavar="FILE", help="the peer; default: that of the tests' torch")
    parser.add_argument("--other", metavar="FILE", help="a second ddprun")
    arguments = parser.parse_args()
    OTHER[:] = [arguments.other] if arguments.other else []
    TORCHRUN[:] = [arguments.torchrun or TORCHRUN[0]]
    torchrun = os.access(TORCHRUN[0], os.X_OK)
    if not os.access(DDPRUN[0], os.X_OK):
        sys.exit(f"error: {DDPRUN[0]} is not built: cmake --preset release && cmake --build build/release --target ddprun")
    if not torchrun:
        print(f"{TORCHRUN[0]} is not there (scripts/setup installs it)")
        return 77
    repetitions = 3 if arguments.quick else arguments.repetitions
    peer = peer_version()
    print(f"{repetitions} repetitions of {len(CELLS)} cells beside torchrun {peer}, {os.cpu_count()} cores", flush=True)
    results = measure(repetitions, torchrun)
    print_table(results)
    os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
    with open(arguments.json, "w", encoding="utf-8") as sink:
        json.dump({"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "repetitions": repetitions,
                   "torchrun": peer, "units": "seconds; memory in KiB", "results": results}, sink, indent=1)
    broken = broken_promises(results)
    for line in broken:
        print(f"BROKEN PROMISE: {line}")
    return 1 if arguments.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
