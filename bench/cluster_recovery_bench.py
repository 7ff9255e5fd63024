#!/usr/bin/env python3
"""What each kind of fault costs a plain PyTorch DDP job on namespace hosts, until all ranks train again.

cluster_recovery_bench.py [--trials N] [--lease SECONDS] [--only WORDS]

Prints for each kind in how many trials all ranks did a step of the next generation, and medians in milliseconds:
noticed, ddprun's own share (fault to the last survivor's stop, and last tree empty to the last worker's exec), what
the workers take to die (of a killed one, too), and the whole time to the first step of the slowest rank. Exit status
1 when a trial doesn't recover or a median of the own share is above its bound; 77 without namespaces or PyTorch.
"""

import argparse
import os
import select
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
from bed import ROOT, TORCH_PYTHON, Bed, TimelineError, torch_is_there  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "ddp_worker.py")
PORT = 29400
VICTIM = 2
PATIENCE = 60


class Job:
    """One job, which meets a fault after the other: host 1 has the endpoint, the last one is the victim or the spare."""

    def __init__(self, hosts, nnodes, lease):
        self.hosts = hosts
        self.bed = Bed(hosts)
        self.options = ["--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n1:{PORT}", "--rdzv_id", "bench",
                        "--rdzv_conf", f"lease={lease:g},last_call_timeout=30", "--max_restarts", 10000,
                        "--membership_changes", 10000, "--quarantine_after", 0, "--grace", 5,
                        "--event_log", self.bed.events.path]
        self.agents = {}

    def start(self, host):
        self.agents[host] = self.bed.run(f"agent{host}", [*self.options, WORKER, self.bed.journal.path, self.bed.folder],
                                         host=host, env={"PYTHON_EXEC": TORCH_PYTHON})

    def newest(self):
        return max((int(line["generation"]) for line in self.bed.events.find("generation")), default=0)

    def trained(self, world, after=0.0):
        """When the slowest rank had done its first step in the newest generation, begun since then."""
        def done():
            lines = [line for line in self.bed.journal.find("step", after)
                     if line["generation"] == self.newest() and line["world"] == world]
            first = {}
            for line in lines:
                first.setdefault(line["rank"], line["t"])
            begun = [line for line in self.bed.events.find("generation", after)
                     if int(line["generation"]) == self.newest()]
            return max(first.values()) if len(first) == world and begun else None
        return self.bed.wait(done, f"a step of {world} ranks", PATIENCE)

    def spare_waits(self, after):
        return self.bed.event("standby", after=after, timeout=PATIENCE)

    def cost(self, fault, noticed):
        """{what: seconds} of the newest generation, by the timeline."""
        find = self.bed.events.find
        begun = [line["t"] for line in find("generation", fault) if int(line["generation"]) == self.newest()][0]
        stops = [line["t"] for line in find("stop_begin", fault - 1) if line["t"] < begun]
        empty = [line["t"] for line in find("group_empty", fault - 1) if line["t"] < begun]
        started = [line["t"] for line in find("worker_started", fault) if line["generation"] == self.newest()]
        told = max([noticed, *stops]) - fault
        last_empty = max(empty, default=fault + told)
        return {"noticed": noticed - fault, "own": told + max(started) - last_empty, "dying": last_empty - fault - told}

    def close(self):
        self.hosts.heal()
        self.bed.stop()
        self.bed.close()


def kill_worker(job, world):
    """A worker of the victim's host is killed."""
    lines = [line for line in job.bed.events.find("worker_started") if line["who"].startswith(f"agent:n{VICTIM}")]
    pid = lines[-1]["worker_pid"]
    killed = time.monotonic()
    dead = die(pid)
    exit_ = job.bed.event("worker_exit", after=killed, worker_pid=pid)
    trained = job.trained(world, killed)
    cost = job.cost(dead, max(dead, exit_["t_seen"]))
    return {**cost, "dying": cost["dying"] + dead - killed, "whole": trained - killed}


def die(pid):
    """Kills a process, and gives the time when it was dead: the kernel takes 30 to 100 ms for torch's memory."""
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([pidfd], [], [])
    os.close(pidfd)
    return time.monotonic()


def lose_node(job, fault, world):
    lost = job.bed.event("node_lost", after=fault, timeout=PATIENCE)
    trained = job.trained(world, fault)
    return {**job.cost(fault, lost["t"]), "whole": trained - fault}


def member_beside_host(job):
    """The host other than the first that has ranks now."""
    line = [line for line in job.bed.events.find("assignment") if int(line["generation"]) == job.newest()
            and not line["who"].startswith("agent:n1")][-1]
    return int(line["who"].removeprefix("agent:n").partition("#")[0])


def kill_agent(job, world):
    """An agent is killed while a spare waits; a new one becomes the next spare."""
    host = member_beside_host(job)
    fault = time.monotonic()
    job.agents[host].signal(signal.SIGKILL)
    cost = lose_node(job, fault, world)
    again = time.monotonic()
    job.start(host)
    job.spare_waits(again)
    return cost


def silence_machine(job, world):
    """A machine falls silent while a spare waits; its agent is replaced when the cable is back."""
    host = member_beside_host(job)
    fault = time.monotonic()
    job.hosts.pull_cable(host)
    cost = lose_node(job, fault, world)
    job.agents[host].signal(signal.SIGKILL)
    job.hosts.heal()
    again = time.monotonic()
    job.start(host)
    job.spare_waits(again)
    return cost


def shrink(job, fault):
    cost = lose_node(job, fault, 1)
    job.agents[VICTIM].signal(signal.SIGKILL)
    job.hosts.heal()
    return cost


def grow(job):
    """A node joins a job that runs without it."""
    fault = time.monotonic()
    job.start(VICTIM)
    joined = job.bed.event("node_joined", after=fault)
    trained = job.trained(2, fault)
    # The agent's own start is no part of what the job pays for.
    return {**job.cost(joined["t"], joined["t"]), "whole": trained - fault}


def kill_agent_and_grow(job, _):
    fault = time.monotonic()
    job.agents[VICTIM].signal(signal.SIGKILL)
    shrink(job, fault)
    return grow(job)


def shrink_by_kill(job, _):
    fault = time.monotonic()
    job.agents[VICTIM].signal(signal.SIGKILL)
    cost = shrink(job, fault)
    grow(job)
    return cost


def shrink_by_silence(job, _):
    fault = time.monotonic()
    job.hosts.pull_cable(VICTIM)
    cost = shrink(job, fault)
    grow(job)
    return cost


# (name, --nnodes, agents, trial, bound of the own share in seconds for a lease)
KINDS = [
    ("worker killed, fixed", "2", 2, kill_worker, lambda lease: 0.050),
    ("worker killed, elastic", "1:2", 2, kill_worker, lambda lease: 0.050),
    ("agent killed, spare, fixed", "2", 3, kill_agent, lambda lease: 0.250),
    ("agent killed, elastic", "1:2", 2, shrink_by_kill, lambda lease: 0.250),
    ("node joins, elastic", "1:2", 2, kill_agent_and_grow, lambda lease: 0.100),
    ("machine silent, spare, fixed", "2", 3, silence_machine, lambda lease: lease + 0.350),
    ("machine silent, elastic", "1:2", 2, shrink_by_silence, lambda lease: lease + 0.350),
]


def measure_in_one_job(hosts, kind, trials, lease):
    _, nnodes, agents, trial, _ = kind
    job = Job(hosts, nnodes, lease)
    costs = []
    try:
        for host in range(1, agents + 1):
            began = time.monotonic()
            job.start(host)
            job.bed.event("node_joined", after=began, timeout=PATIENCE)
        job.trained(2)
        for _ in range(trials):
            costs.append(trial(job, 2))
    except TimelineError as error:
        print(f"    after {len(costs)} trials: {error}\n{job.bed.story()[-6000:]}", flush=True)
    finally:
        job.close()
    return costs


def measure(hosts, kind, trials, lease):
    if kind[3] is not kill_agent_and_grow:
        return measure_in_one_job(hosts, kind, trials, lease)
    # Each in a job of its own: one that loses its newcomer within a minute has the next one wait, for 10 s and more (R3).
    return [cost for _ in range(trials) for cost in measure_in_one_job(hosts, kind, 1, lease)]


def run(arguments):
    hosts = cluster.Cluster(3)
    worse = False
    print(f"{arguments.trials} trials each, lease {arguments.lease:g} s; medians in milliseconds")
    print(f"{'fault':<32}{'recovered':>10}{'noticed':>9}{'own share':>11}{'bound':>7}{'dying':>8}{'first step':>12}")
    for kind in [kind for kind in KINDS if arguments.only in kind[0]]:
        costs = measure(hosts, kind, arguments.trials, arguments.lease)
        bound = kind[4](arguments.lease)
        middle = {name: statistics.median(cost[name] for cost in costs) if costs else float("inf")
                  for name in ("noticed", "own", "dying", "whole")}
        held = len(costs) == arguments.trials and middle["own"] <= bound
        worse = worse or not held
        print(f"{kind[0]:<32}{f'{len(costs)} of {arguments.trials}':>10}{1000 * middle['noticed']:>9.1f}"
              f"{1000 * middle['own']:>11.1f}{1000 * bound:>7.0f}{1000 * middle['dying']:>8.1f}"
              f"{1000 * middle['whole']:>12.0f}{'' if held else '   MISSED'}", flush=True)
    return 1 if worse else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--only", default="", help="the kinds whose names hold these words")
    arguments = parser.parse_args()
    if not torch_is_there():
        print(f"{TORCH_PYTHON} has no torch (scripts/setup installs it)")
        return 77
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
