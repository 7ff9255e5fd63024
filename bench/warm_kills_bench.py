#!/usr/bin/env python3
"""Kills in a row at random moments of a plain PyTorch DDP script that starts warm: two nodes of one worker, on hosts made of
namespaces, else on loopback.

warm_kills_bench.py [--kills N] [--seed N]

Each kill is SIGKILL of a worker, or now and then of the interpreter that waits on a node; some come in the middle of the restart
before. Fails when a start hangs, a process outlives the job, a node has more interpreters that wait than one (and the two
forks of it), or memory or descriptors of an agent or a keeper grow. 77 without PyTorch.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

import warm_bench  # noqa: E402
from warm_bench import cluster, environment_of, jobs, pause  # noqa: E402

from parked_bench import children  # noqa: E402
from timeline import leftovers, state_of  # noqa: E402

QUIET = 10  # kills after which everything is looked at
GROWTH_KIB, GROWTH_DESCRIPTORS = 2048, 4


class Kills:
    def __init__(self, training, rng):
        self.training, self.rng = training, rng
        self.killed, self.interpreters_killed = set(), 0
        self.seconds = []  # from a kill to the first step of all, of those that no other kill followed

    @property
    def events(self):
        return self.training.job.events

    def whole(self):
        """The lines of the newest generation's two workers, when both train."""
        def there():
            newest = max((int(line["generation"]) for line in self.events.find("spawn")), default=0)
            lines = [line for line in self.training.job.journal.find("worker")
                     if int(line["environment"]["DDPRUN_GENERATION"]) == newest]
            return len(lines) == 2 and self.killed.isdisjoint(line["pid"] for line in lines) and lines
        return self.training.job.wait(there, "two workers that train", warm_bench.BOUND * jobs.SLOW,
                                      alive=list(self.training.nodes.values()))

    def keepers(self):
        return [line["keeper"] for line in self.events.find("agent_start")]

    def waiting(self, keeper):
        """The interpreters of a keeper that wait: its children that are no workers."""
        return [pid for pid in children(keeper) if "RANK" not in environment_of(pid) and state_of(pid) not in (None, "Z")]

    def forks(self, pids):
        found = list(pids)
        for pid in found:
            found += children(pid)
        return [pid for pid in found if state_of(pid) not in (None, "Z")]

    def look(self):
        """Everything is as it should be when nothing has happened for a while: one interpreter a node, and two forks ahead."""
        self.whole()
        deadline = time.monotonic() + warm_bench.BOUND
        while True:
            found = [(len(waiting := self.waiting(keeper)), len(self.forks(waiting))) for keeper in self.keepers()]
            if found == [(1, 3), (1, 3)]:
                return
            if time.monotonic() > deadline:
                raise jobs.TimelineError(f"(interpreters, with their forks) of each node: {found}")
            pause(0.05)

    def sizes(self):
        """{what: KiB or descriptors} of agents and keepers."""
        found = {}
        agents = {node.name: node.pid for node in self.training.nodes.values()}
        for name, pid in {**agents, **{f"keeper {i}": pid for i, pid in enumerate(self.keepers())}}.items():
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
                found[f"{name} KiB"] = next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))
            found[f"{name} descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        return found

    def kill_an_interpreter(self):
        self.look()
        began = time.monotonic()
        os.kill(self.waiting(self.rng.choice(self.keepers()))[0], signal.SIGKILL)
        self.interpreters_killed += 1
        self.training.job.event("warm_ready", after=began, timeout=warm_bench.BOUND * jobs.SLOW)

    def kill_a_worker(self):
        workers = list(self.training.workers())
        if not workers:
            return
        victim = self.rng.choice(workers)
        began = time.monotonic()
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed.add(victim)
        pause(self.rng.random() * 0.4)  # a moment in the middle of the restart, or after it
        if self.rng.random() < 0.5:
            lines = self.whole()
            self.seconds.append(max(line["t"] for line in lines) - began)

    def run(self, count):
        sizes, began = {}, time.monotonic()
        while len(self.killed) < count:
            if self.rng.random() < 0.01:
                self.kill_an_interpreter()
            self.kill_a_worker()
            if len(self.killed) % QUIET == 0:
                self.look()
            if not sizes and len(self.killed) >= count // 3:
                self.look()
                sizes = self.sizes()
            if len(self.killed) % 100 == 0:
                print(f"{len(self.killed)} kills after {time.monotonic() - began:.0f} s: {self.sizes()}", flush=True)
        self.look()
        grown = {name: (sizes[name], size) for name, size in self.sizes().items()
                 if size - sizes[name] > (GROWTH_KIB if name.endswith("KiB") else GROWTH_DESCRIPTORS)}
        if grown:
            raise jobs.TimelineError(f"grown between a third of the kills and the end: {grown}")


def tell(kills):
    warm = [bool(line.get("warm")) for line in kills.events.find("worker_started")]
    seconds = sorted(kills.seconds)
    print(f"{len(kills.killed)} workers and {kills.interpreters_killed} interpreters killed; {sum(warm)} of {len(warm)} starts "
          f"warm; from a kill to the first step of all {statistics.median(seconds):.2f} s (median of {len(seconds)}), "
          f"95 of 100 within {seconds[int(0.95 * len(seconds))]:.2f} s, longest {seconds[-1]:.2f} s; load "
          f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


def run(arguments, hosts):
    print(f"seed {arguments.seed}", flush=True)
    training = warm_bench.Training("warm", hosts)
    try:
        began = time.monotonic()
        training.start()
        training.await_parked(began)
        kills = Kills(training, random.Random(arguments.seed))
        kills.run(arguments.kills)
        training.end(kills.whole())
        left = leftovers(training.job.tag, 2 * jobs.SLOW)
        tell(kills)
        if left:
            print(f"processes outlived the job: {left}")
        return 1 if left else 0
    except jobs.TimelineError as error:
        print(f"{error}\n{training.job.story()[-8000:]}", flush=True)
        return 1
    finally:
        training.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    if not jobs.PINNED.is_there():
        print(f"{jobs.TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    if cluster.why_not():
        return run(arguments, None)
    return cluster.run_inside(lambda: run(arguments, cluster.Cluster(2)))


if __name__ == "__main__":
    sys.exit(main())
