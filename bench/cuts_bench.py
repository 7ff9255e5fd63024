#!/usr/bin/env python3
"""What a cut of one host's link costs a plain DDP job over gloo, beside torchrun; and what a host that dies costs.

cuts_bench.py [--launchers ddprun,torchrun] [--cuts 2,4,8,15,30] [--kinds fixed,elastic] [--hosts 2,3] [--deaths N]

Namespace hosts with one worker each. The last host's link is down for so many seconds, in the midst of the training, and
comes back. Printed for each job: how many times the program began, the steps that were done twice, the longest pause
between two steps, and how long the job took from the cut on. The program saves nothing: a restart would cost all that it has
done, and it has trained for longer than the cut lasts. Then --deaths hosts of an elastic job that marks its checkpoints lose
their power, and as many agents are killed instead, which is noticed at once: the best that can be had.

Exit status 1 where torchrun lost nothing and ddprun did, or where a dead host cost more than twice the best; 77 without
namespaces or PyTorch.
"""

import argparse
import os
import signal
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
from bed import TORCH_PYTHON, Bed, TimelineError, torch_is_there, wait_readable  # noqa: E402

WORKER = os.path.join(ROOT, "bench", "worker", "plain_ddp.py")
TORCHRUN = os.path.join(os.path.dirname(TORCH_PYTHON), "torchrun")
PORT = 29400
STEP = 0.05
AFTER = 6  # seconds of training that are left at the cut
PATIENCE = 180
# What processes of a busy machine take: of a pause that is allowed, or of twice the best.
NOISE = 3.0


class Job:
    def __init__(self, hosts, count, kind, launcher):
        self.hosts, self.count, self.launcher = hosts, count, launcher
        self.bed = Bed(hosts)
        self.nnodes = f"{count}" if kind == "fixed" else f"{count - 1}:{count}"
        self.agents = []

    def start(self, steps, every=0, mark=False):
        program = [WORKER, self.bed.journal.path, steps, self.bed.path("checkpoint.pt"), every, *(["mark"] if mark else [])]
        options = ["--nnodes", self.nnodes, "--nproc_per_node", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n1:{PORT}",
                   "--rdzv_id", "cuts", "--max_restarts", 3]
        python = {"PYTHON_EXEC": TORCH_PYTHON}
        for host in range(1, self.count + 1):
            if self.launcher == "ddprun":
                agent = self.bed.run(f"agent{host}", [*options, "--event_log", self.bed.events.path, *program], host=host,
                                     env=python)
            else:
                command = [TORCHRUN, *map(str, [*options, "--local_addr", f"n{host}", *program])]
                agent = self.bed.start_process(f"agent{host}", self.hosts.command(host, command),
                                               output=self.bed.path(f"agent{host}.out"),
                                               env={**self.bed.environment, **python})
            self.agents.append(agent)

    def steps(self):
        return self.bed.journal.find("step")

    def trained(self, seconds, after=0.0):
        """The first step at which so many seconds of steps are done."""
        wanted = int(seconds / STEP)
        self.bed.wait(lambda: [line for line in self.bed.journal.find("step", after) if line["step"] >= wanted],
                      f"step {wanted}", PATIENCE)

    def close(self):
        self.hosts.heal()
        self.bed.stop()
        self.bed.close()


def cost(job, since):
    """What of the job's timeline lies after the fault."""
    lines = job.steps()
    times = [line["t"] for line in lines]
    pauses = [after - before for before, after in zip(times, times[1:]) if after > since]
    numbers = [line["step"] for line in lines]
    final = job.bed.journal.find("final")
    return {"starts": len(job.bed.journal.find("begin")), "twice": len(numbers) - len(set(numbers)),
            "pause": max(pauses, default=0.0), "whole": final[0]["t"] - since if final else None}


def cut(hosts, kind, count, launcher, seconds):
    """One job whose last host is cut off for a while."""
    job = Job(hosts, count, kind, launcher)
    since = time.monotonic()
    try:
        before = seconds + 2
        job.start(int((before + AFTER) / STEP))
        job.trained(before)
        since = time.monotonic()
        hosts.pull_cable(count)
        wait_readable(job.agents[0].pidfd, seconds)  # the cut itself
        hosts.heal()
        job.bed.wait(lambda: job.bed.journal.find("final"), "the end", PATIENCE, job.agents)
    except TimelineError as error:
        print(f"    {error}\n{job.bed.story()[-4000:]}", flush=True)
    finally:
        result = cost(job, since)
        job.close()
    return result


def death(hosts, seconds, kill):
    """A host of an elastic job that saves every five seconds has no power any more; or its agent is killed."""
    job = Job(hosts, 3, "elastic", "ddprun")
    try:
        job.start(10000, every=100, mark=True)
        job.trained(seconds)
        since = time.monotonic()
        job.agents[2].signal(signal.SIGKILL) if kill else hosts.power_off(3)
        last = job.steps()[-1]["step"]
        back = job.bed.wait(lambda: [line for line in job.bed.journal.find("step", since + 1) if line["step"] > last + 1],
                            "a step that was not done before", PATIENCE)
        return back[0]["t"] - since
    finally:
        job.close()


def show_cuts(hosts, arguments):
    bad = 0
    print(f"{'job':<10} {'hosts':>5} {'cut s':>6} {'launcher':<9} {'begun':>5} {'twice':>6} {'pause s':>8} {'whole s':>8}")
    for kind in arguments.kinds.split(","):
        for count in map(int, arguments.hosts.split(",")):
            for seconds in map(float, arguments.cuts.split(",")):
                seen = {}
                for launcher in arguments.launchers.split(","):
                    seen[launcher] = one = cut(hosts, kind, count, launcher, seconds)
                    whole = "never" if one["whole"] is None else f"{one['whole']:.1f}"
                    print(f"{kind:<10} {count:>5} {seconds:>6g} {launcher:<9} {one['starts']:>5} {one['twice']:>6} "
                          f"{one['pause']:>8.1f} {whole:>8}", flush=True)
                theirs, ours = seen.get("torchrun"), seen.get("ddprun")
                if ours is not None and (theirs is None or (theirs["starts"] == 1 and theirs["whole"] is not None)):
                    bad += ours["starts"] != 1 or ours["whole"] is None
    return bad


def show_deaths(hosts, arguments):
    bad = 0
    for number in range(arguments.deaths):
        seconds = 8.5 + 2 * (number % 3)
        best, silent = death(hosts, seconds, kill=True), death(hosts, seconds, kill=False)
        print(f"host dies after {seconds:g} s of training: {silent:.1f} s until it trains on; its agent killed: {best:.1f} s",
              flush=True)
        bad += silent > 2 * best + NOISE
    return bad


def run(arguments):
    hosts = cluster.Cluster(3)
    bad = show_cuts(hosts, arguments)
    bad += show_deaths(hosts, arguments)
    print(f"{bad} bad")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launchers", default="ddprun,torchrun")
    parser.add_argument("--cuts", default="2,4,8,15,30")
    parser.add_argument("--kinds", default="fixed,elastic")
    parser.add_argument("--hosts", default="2,3")
    parser.add_argument("--deaths", type=int, default=3)
    arguments = parser.parse_args()
    if not torch_is_there():
        print("no PyTorch here: scripts/setup installs it")
        return 77
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
