#!/usr/bin/env python3
"""How soon each kind of fault is noticed, and all survivors are asked to leave the old generation.

detection_bench.py [--runs N] [--lease SECONDS] [--torchrun-runs N] [--patience SECONDS]

Three hosts made of namespaces, one worker each; the fault is on the third. Prints for each kind the median and
the 95th percentile beside the bound of docs/TESTING.md, and in how many runs torchrun did anything within the
patience. Exit status 1 when a 95th percentile is above its bound; 77 where there are no namespaces.
"""

import argparse
import os
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
for folder in ("cluster", "contract", "support"):
    sys.path.insert(0, os.path.join(ROOT, "tests", folder))

import cluster  # noqa: E402
import jobs  # noqa: E402
from bed import WORKER, Bed, TimelineError  # noqa: E402

PORT = 29400
NODES = 3
VICTIM = 3


def heartbeat(lease):
    """The probe interval of docs/PROTOCOL.md."""
    return max(0.05, min(1.0, lease / 5))


class Trial:
    """One job of a launcher on the hosts."""

    def __init__(self, hosts, launcher, lease):
        self.hosts = hosts
        self.bed = Bed(hosts)
        self.lease = lease
        self.ours = launcher is jobs.OURS
        ours = ["--rdzv_conf", f"lease={lease:g},last_call_timeout=30", "--event_log", self.bed.events.path]
        theirs = ["--rdzv_conf", "last_call_timeout=3"]
        self.agents = []
        for host in range(1, NODES + 1):
            command = [*launcher.command, "--nnodes", f"1:{NODES}", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                       f"10.77.0.1:{PORT}", "--rdzv_id", "bench", "--max_restarts", "3", *(ours if self.ours else theirs),
                       WORKER, self.bed.journal.path, "wait"]
            self.agents.append(self.bed.start_process(
                f"agent{host}", hosts.command(host, command), output=self.bed.path(f"agent{host}.out"),
                env=self.bed.environment))
        self.workers = self.bed.wait(self.all_run, f"{NODES} workers", 90, self.agents)
        if self.ours:
            self.bed.event("started")

    def all_run(self):
        lines = self.bed.journal.find("worker", world=NODES)
        return sorted(lines, key=lambda line: line["host"]) if len(lines) >= NODES else None

    def worker(self, number):
        os.kill(self.workers[VICTIM - 1]["pid"], number)

    def agent(self, number):
        self.agents[VICTIM - 1].signal(number)

    def noticed(self, fault, event, seen="t"):
        """Seconds from the fault to the event, and to the last survivor's stop (where there is one)."""
        line = self.bed.event(event, after=fault - 0.001)
        asked = None
        if event != "worker_suspended":
            lines = self.bed.wait(lambda: self.stops(fault), "the stop of all survivors", 30)
            asked = max(line["t"] for line in lines) - fault
        return line.get(seen, line["t"]) - fault, asked

    def stops(self, fault):
        survivors = {line["who"]: line for line in self.bed.events.find("stop_begin", fault)
                     if not line["who"].startswith(f"agent:n{VICTIM}")}
        return list(survivors.values()) if len(survivors) == NODES - 1 else None

    def reacted(self, fault, patience):
        """Whether a survivor's launcher did anything: its worker began anew, or it ended."""
        def anything():
            new = [line for line in self.bed.journal.find("worker", fault) if line["host"] != f"n{VICTIM}"]
            return new or [agent for agent in self.agents[:VICTIM - 1] if agent.ended()]
        try:
            return bool(self.bed.wait(anything, "nothing", patience))
        except TimelineError:
            return False

    def close(self):
        self.hosts.heal()
        for agent in self.agents:
            agent.signal(signal.SIGCONT)
        jobs.kill_tagged(self.bed.tag)
        self.bed.close()


# (name, what to do to a trial, the event that says it was noticed, its field, bound for a lease in seconds)
KINDS = [
    ("worker killed", lambda t: t.worker(signal.SIGKILL), "worker_exit", "t_seen", lambda lease: 0.010),
    ("worker stopped", lambda t: t.worker(signal.SIGSTOP), "worker_suspended", "t", lambda lease: 0.100),
    ("agent killed", lambda t: t.agent(signal.SIGKILL), "node_lost", "t", lambda lease: 0.200),
    ("agent frozen", lambda t: t.agent(signal.SIGSTOP), "node_lost", "t", lambda lease: lease + heartbeat(lease) + 0.1),
    ("machine silent", lambda t: t.hosts.pull_cable(VICTIM), "node_lost", "t",
     lambda lease: lease + heartbeat(lease) + 0.1),
    ("cut toward the service", lambda t: t.hosts.cut_one_way(VICTIM, 1), "node_lost", "t",
     lambda lease: lease + heartbeat(lease) + 0.1),
    ("cut from the service", lambda t: t.hosts.cut_one_way(1, VICTIM), "node_lost", "t",
     lambda lease: lease + heartbeat(lease) + 0.1),
]


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def measure(hosts, kind, runs, lease):
    """([seconds to notice], [seconds until all survivors were asked to stop])"""
    _, fault_of, event, seen, _ = kind
    noticed, asked = [], []
    for _ in range(runs):
        trial = Trial(hosts, jobs.OURS, lease)
        try:
            fault = time.monotonic()
            fault_of(trial)
            first, last = trial.noticed(fault, event, seen)
            noticed.append(first)
            if last is not None:
                asked.append(last)
        finally:
            trial.close()
    return noticed, asked


def count_torchrun(hosts, kind, runs, patience):
    reacted = 0
    for _ in range(runs):
        trial = Trial(hosts, jobs.PINNED, 0)
        try:
            fault = time.monotonic()
            kind[1](trial)
            reacted += trial.reacted(fault, patience)
        finally:
            trial.close()
    return reacted


def run(arguments):
    hosts = cluster.Cluster(NODES)
    missed = False
    theirs = arguments.torchrun_runs if jobs.PINNED.is_there() else 0
    print(f"{arguments.runs} runs each, lease {arguments.lease:g} s; milliseconds; torchrun: reactions of survivors within "
          f"{arguments.patience:g} s")
    print(f"{'fault':<24}{'noticed p50':>12}{'p95':>8}{'bound':>8}{'stop p50':>10}{'p95':>8}   torchrun")
    for kind in KINDS:
        noticed, asked = measure(hosts, kind, arguments.runs, arguments.lease)
        bound = kind[4](arguments.lease)
        late = percentile(noticed, 95) > bound
        missed = missed or late
        stop_text = (f"{1000 * statistics.median(asked):>10.1f}{1000 * percentile(asked, 95):>8.1f}" if asked
                     else f"{'-':>10}{'-':>8}")
        beside = f"{count_torchrun(hosts, kind, theirs, arguments.patience)} of {theirs}" if theirs else "not run"
        print(f"{kind[0]:<24}{1000 * statistics.median(noticed):>12.1f}{1000 * percentile(noticed, 95):>8.1f}"
              f"{1000 * bound:>8.0f}{stop_text}   {beside}{'   TOO LATE' if late else ''}", flush=True)
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--torchrun-runs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that torchrun has to do something")
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
