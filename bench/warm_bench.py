#!/usr/bin/env python3
"""How soon a plain PyTorch DDP script trains: ddprun beside `ddprun daemon`, ddprun, ddprun --warm off, and torchrun, in one run.

warm_bench.py [--kills N] [--torchrun-kills N] [--starts N] [--torchrun-starts N] [--daemon-starts N] [--spares N] [--check]
              [--json FILE]

Two nodes of one worker under gloo, on hosts made of namespaces, else on loopback. Seconds until the first step of all
workers: from the SIGKILL of a worker; of a second one 0.3 s after a first; from the command, when the script was run before;
from the SIGKILL of a node's agent while a spare waits (hosts only). --check: exit status 1 when warm isn't 5 times sooner than
ddprun is cold after a kill, and 10 times than torchrun's best, or a start beside ddprun daemon isn't 15 times sooner than
torchrun's best. 77 without PyTorch.
"""

import argparse
import datetime
import json
import os
import select
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.path.insert(0, os.path.join(ROOT, "tests", "contract"))

import cluster  # noqa: E402
import jobs  # noqa: E402

TRAIN = """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
told = False
while True:
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    end = signal.sigtimedwait({signal.SIGUSR1}, 0.01) is not None
    flag = torch.tensor([float(end)])
    dist.all_reduce(flag)
    if not told: probe.tell()
    told = True
    if flag.item() > 0: break
dist.destroy_process_group()
os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends: a failure, so a restart
"""

WAYS = {  # name: (launcher, options)
    "daemon": (jobs.OURS, ()),
    "warm": (jobs.OURS, ()),  # the default
    "cold": (jobs.OURS, ("--warm", "off")),
    "torchrun": (jobs.PINNED, ()),
}
# Kills on purpose, again and again: no pause before a restart, and no node that is left out for them.
UNMOVED = ("--restart_backoff", 0, "--quarantine_after", 0, "--membership_changes", 10000)
SECOND_AFTER = 0.3  # seconds after the first kill
BOUND = 120  # seconds for one thing


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as source:
            return dict(variable.split("=", 1) for variable in source.read().split("\0") if "=" in variable)
    except (FileNotFoundError, ProcessLookupError):
        return {}


class Training:
    """Runs of one job, one after the other; the first host has the endpoint."""

    def __init__(self, way, hosts, script=TRAIN, python=jobs.TORCH_PYTHON):
        launcher, self.options = WAYS[way]
        self.python = python
        self.hosts = hosts
        self.job = jobs.Job(launcher)
        self.job.environment["XDG_CACHE_HOME"] = self.job.path("cache")
        self.warm = way == "warm"
        self.has_daemons = way == "daemon"
        self.daemons = {}
        self.spares = 0  # how many interpreters each daemon keeps ready, or is about to
        self.script = self.job.script(script)
        self.nodes = {}
        self.port = 0

    @property
    def ours(self):
        return self.job.launcher is jobs.OURS

    def environment(self, host):
        environment = {**self.job.environment, "PYTHON_EXEC": self.python}
        if self.has_daemons:
            environment["DDPRUN_DAEMON_DIR"] = self.job.path(f"run{host}")
        return environment

    def start_daemons(self):
        """One on each host, as each has a network of its own."""
        for host in (1, 2) if self.has_daemons else ():
            os.mkdir(self.job.path(f"run{host}"), 0o700)
            command = [*self.job.launcher.command, "daemon"]
            if self.hosts:
                command = self.hosts.command(host, command)
            output = self.job.path(f"daemon{host}.out")
            self.daemons[host] = self.job.start_process(f"daemon{host}", command, env=self.environment(host), output=output)
            self.job.watch(output)
        self.await_daemons("keeps interpreters ready", 1)

    def await_daemons(self, text, count):
        self.job.wait(lambda: all(daemon.text().count(text) >= count for daemon in self.daemons.values()), text,
                      BOUND * jobs.SLOW, alive=list(self.daemons.values()))

    def start_node(self, host):
        address = "n1" if self.hosts else "127.0.0.1"
        words = ["--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{self.port}", "--rdzv-id", "job",
                 "--rdzv-conf", "last_call_timeout=2", "--max-restarts", 100000, *self.options]
        if self.ours:
            words += [*UNMOVED, "--event_log", self.job.events.path]
        command = [*self.job.launcher.command, *map(str, words), self.script]
        if host in self.daemons and self.hosts:
            # Each command of a host has a name space of host names of its own, and a daemon serves only its own.
            command = ["nsenter", f"--target={self.daemons[host].pid}", "--net", "--uts", *command]
        elif self.hosts:
            command = self.hosts.command(host, command)
        self.nodes[host] = self.job.start_process(
            f"node{host}", command, env=self.environment(host), output=self.job.path(f"node{host}.out"))

    def start(self):
        """Seconds until both train, and their lines."""
        self.port = jobs.free_port()
        began = time.monotonic()
        for host in (1, 2):
            self.start_node(host)
        lines = self.trained({}, began)
        return max(line["t"] for line in lines) - began, lines

    def workers(self):
        """{pid: rank} of those that are there; torchrun's counts of restarts differ between nodes."""
        found = {pid: environment_of(pid).get("RANK") for pid in jobs.tagged(self.job.tag)}
        return {pid: int(rank) for pid, rank in found.items() if rank is not None}

    def trained(self, before, after):
        """The lines of two workers other than those before, when both have stepped."""
        def complete():
            lines = {line["rank"]: line for line in self.job.journal.find("worker", after, world=2) if line["pid"] not in before}
            return lines if len(lines) == 2 else None
        lines = self.job.wait(complete, "two workers that train", BOUND * jobs.SLOW)
        return [lines[0], lines[1]]

    def await_parked(self, after, count=2):
        """Until nodes have an interpreter that waits: some seconds after the first step of the first run."""
        if self.warm:
            self.job.event("warm_ready", after=after, count=count, timeout=BOUND * jobs.SLOW)

    def kill(self, pid):
        """Seconds until both train again, and their lines."""
        before = self.workers()
        fault = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        anew = self.trained(before, fault)
        return max(line["t"] for line in anew) - fault, anew

    def kill_one(self, lines):
        return self.kill(lines[1]["pid"])

    def kill_two(self, lines):
        """As kill_one(), from the second kill."""
        before = self.workers()
        os.kill(lines[1]["pid"], signal.SIGKILL)
        pause(SECOND_AFTER)
        while True:  # torchrun may not have started them anew yet
            for pid, rank in self.workers().items():
                if rank == 1 and pid not in before:
                    return self.kill(pid)
            pause(0.01)

    def lose_node(self, lines):
        """As kill_one(), from the SIGKILL of the agent of the rank that isn't at the first host; a new spare waits then."""
        generation = int(lines[0]["environment"]["DDPRUN_GENERATION"])
        line = [line for line in self.job.events.find("assignment") if int(line["generation"]) == generation
                and not line["who"].startswith("agent:n1")][-1]
        host = int(line["who"].removeprefix("agent:n").partition("#")[0])
        before = self.workers()
        fault = time.monotonic()
        self.nodes[host].signal(signal.SIGKILL)
        anew = self.trained(before, fault)
        self.start_spare(host)
        return max(line["t"] for line in anew) - fault, anew

    def start_spare(self, host):
        began = time.monotonic()
        self.start_node(host)
        self.job.event("standby", after=began, timeout=BOUND * jobs.SLOW)
        self.await_parked(began, 1)

    def end(self, lines):
        self.job.finish(lines[:1])
        for node in self.nodes.values():
            node.wait(BOUND * jobs.SLOW)
        self.nodes.clear()
        self.spares += 1
        self.await_daemons("is ready", self.spares)

    def close(self):
        jobs.kill_tagged(self.job.tag)
        self.job.close()


def pause(seconds):
    select.select([], [], [], seconds)


def told(way, what, seconds):
    print(f"  {way:<9}{what:<24}{seconds:7.3f} s", flush=True)
    return seconds


def again(way, what, count, lines, trial):
    """Seconds of `count` trials; each begins with the lines of the one before."""
    seconds = []
    for _ in range(count):
        took, lines = trial(lines)
        seconds.append(told(way, what, took))
        pause(0.2)  # so that no trial is also the one before's
    return seconds, lines


def measure(way, hosts, kills, starts, spares):
    training = Training(way, hosts)
    seconds = {}
    try:
        training.start_daemons()
        began = time.monotonic()
        took, lines = training.start()
        told(way, "first start", took)
        training.await_parked(began)
        seconds["start"] = []
        for _ in range(starts):
            training.end(lines)
            began = time.monotonic()
            took, lines = training.start()
            seconds["start"].append(told(way, "start", took))
            training.await_parked(began)
        seconds["kill"], lines = again(way, "kill", kills, lines, training.kill_one)
        seconds["second kill"], lines = again(way, "second kill", kills, lines, training.kill_two)
        if spares:
            training.start_spare(3)
            seconds["node killed"], lines = again(way, "node killed", spares, lines, training.lose_node)
        training.end(lines)
    except jobs.TimelineError as error:
        print(f"{way}: {error}\n{training.job.story()[-8000:]}", flush=True)
    finally:
        training.close()
    return seconds


def shown(seconds):
    if not seconds:
        return "not run"
    return f"median {statistics.median(seconds):.3f} s, best {min(seconds):.3f}, worst {max(seconds):.3f} of {len(seconds)}"


def show(seconds):
    """A table, with warm's ratios to the others."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for what in ("start", "kill", "second kill", "node killed"):
        warm = seconds["warm"].get(what)
        for way in WAYS:
            of = seconds[way].get(what)
            ratio = ""
            if what == "start" and of and seconds["daemon"].get("start") and way != "daemon":
                base = min(of) if way == "torchrun" else statistics.median(of)
                ratio = f", {base / statistics.median(seconds['daemon']['start']):.1f} times daemon"
            elif warm and of and way != "warm":
                # torchrun's best trial, among those in which it recovered.
                base = min(of) if way == "torchrun" else statistics.median(of)
                ratio = f", {base / statistics.median(warm):.1f} times warm"
            print(f"{what + ' to first step,':<28}{way:<10}{shown(of)}{ratio}")


def run(arguments, hosts):
    counts = {
        "warm": (arguments.kills, arguments.starts, arguments.spares if hosts else 0),
        "torchrun": (arguments.torchrun_kills, arguments.torchrun_starts, 0),
    }
    counts["cold"] = counts["warm"]
    counts["daemon"] = (0, arguments.daemon_starts, 0)
    seconds = {way: measure(way, hosts, *counts[way]) if any(counts[way]) else {} for way in WAYS}
    show(seconds)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as sink:
            json.dump({"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
                       "hosts": "namespaces" if hosts else "loopback", "seconds": seconds}, sink, indent=1)
            sink.write("\n")
    if not arguments.check:
        return 0
    ours, torchruns = seconds["daemon"].get("start"), seconds["torchrun"].get("start")
    if arguments.daemon_starts and (not ours or torchruns and statistics.median(ours) * 15 > min(torchruns)):
        return 1
    if not seconds["warm"].get("kill") or not seconds["cold"].get("kill"):
        return 1
    warm = statistics.median(seconds["warm"]["kill"])
    theirs = seconds["torchrun"].get("kill")
    held = [warm * 5 <= statistics.median(seconds["cold"]["kill"]), not theirs or warm * 10 <= min(theirs)]
    return 0 if all(held) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each kind in one job, with ddprun each way")
    parser.add_argument("--torchrun-kills", type=int, default=3, help="the same with torchrun")
    parser.add_argument("--starts", type=int, default=3, help="after the first one, with ddprun each way")
    parser.add_argument("--torchrun-starts", type=int, default=2)
    parser.add_argument("--daemon-starts", type=int, default=5, help="with a daemon on each host")
    parser.add_argument("--spares", type=int, default=3, help="killed nodes, with ddprun each way")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    if not jobs.PINNED.is_there():
        print(f"{jobs.TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    if cluster.why_not():
        return run(arguments, None)
    return cluster.run_inside(lambda: run(arguments, cluster.Cluster(3)))


if __name__ == "__main__":
    sys.exit(main())
