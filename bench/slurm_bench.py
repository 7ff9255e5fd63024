#!/usr/bin/env python3
"""How many jobs under Slurm finish although a node loses its power.

slurm_bench.py [--trials N] [--seed N] [--without]

A real slurmctld and slurmd on namespace hosts. Each trial is a job of two nodes that trains and saves, in turn one that may
shrink and one of a fixed size with a third node on standby; no node is named by hand. At some moment a node is killed, in turn
the one with the service and the batch script, and the other. Good: the job completes within 180 s, after shrinking or a
requeue, and every step was taken. --without: the negative control, without --no-kill and --requeue. Exit status 1 if a trial
isn't good.
"""

import argparse
import os
import random
import shlex
import statistics
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))

import cluster  # noqa: E402
import slurm  # noqa: E402
from bed import DDPRUN, Bed  # noqa: E402
from timeline import TimelineError  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "saving_worker.py")
STEPS, STEP_MS = 100, 50
PATIENCE = 180
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")


class Trial:
    def __init__(self, hosts, elastic, victim, protected):
        self.bed, self.elastic, self.protected = Bed(), elastic, protected
        self.victim = victim
        self.slurm = slurm.Slurm(hosts, 3, tempfile.mkdtemp(prefix="ddprun-slurm-"))

    def submit(self):
        shrinks = self.elastic and self.protected
        no_kill = ["--no-kill"] if shrinks else []
        line = shlex.join(["srun", *no_kill, DDPRUN, *(["--nnodes", "1:2"] if self.elastic else []), WORKER,
                           self.bed.journal.path, self.bed.folder, str(STEP_MS), str(STEPS)])
        file = os.path.join(self.bed.folder, "status")
        status = f'[ $? -eq 1 ] && [ "$(cat {file})" = 0 ]' if shrinks else "false"  # newer srun fails after a node's loss
        return self.slurm.submit(f"#!/bin/bash\nexport DDPRUN_SLURM_REQUEUE={int(shrinks)} DDPRUN_SLURM_STATUS_FILE={file}\n"
                                 f"{line} || {status}\n", "-N2",
                                 "--ntasks-per-node=1", "--requeue" if self.protected else "--no-requeue", *no_kill,
                                 env=self.bed.environment)

    def end_of(self, job):
        """The state in which the job ended; a requeued one starts when its old credentials have expired."""
        def ended():
            state = self.slurm.fact(job, "JobState")
            return state if state in ENDS else None
        return self.slurm.until(ended, f"the end of job {job}", PATIENCE)

    def run(self, rng):
        """(what was wrong, the seconds from the kill to the job's end)."""
        job = self.submit()
        step = rng.randrange(2, STEPS // 2)
        self.bed.wait(lambda: self.bed.journal.find("step", step=step), f"step {step}", 60)
        killed = time.monotonic()
        self.slurm.kill_node(self.victim)
        state = self.end_of(job)
        seconds = time.monotonic() - killed
        self.bed.follower.refresh()
        missing = set(range(STEPS)) - {line["step"] for line in self.bed.journal.find("step", rank=0)}
        wrong = "" if state == "COMPLETED" else f"the job ended as {state}"
        return wrong or (f"steps were left out: {sorted(missing)[:5]}" if missing else ""), seconds

    def close(self):
        self.slurm.close()
        self.bed.stop()
        self.bed.close()


def run(arguments):
    hosts = cluster.Cluster(4)
    rng = random.Random(arguments.seed)
    good, times = 0, []
    for number in range(arguments.trials):
        trial = Trial(hosts, number % 2 == 0, 1 + number // 2 % 2, not arguments.without)
        try:
            wrong, seconds = trial.run(rng)
            times.append(seconds)
        except TimelineError as error:
            wrong, seconds = str(error).splitlines()[0], 0.0
        finally:
            trial.close()
        good += not wrong
        print(f"trial {number + 1}: {'may shrink' if trial.elastic else 'fixed size'}, node {trial.victim} killed, "
              f"{seconds:.1f} s until its end: {wrong or 'good'}", flush=True)
    print(f"summary: {good} of {arguments.trials} jobs with a node killed finished, {statistics.median(times or [0]):.1f} s "
          f"from the kill to the end (median; seed {arguments.seed})")
    return 0 if good == arguments.trials else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="store_true")
    arguments = parser.parse_args()
    reason = slurm.why_not()
    if reason:
        print(reason)
        return 77
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
