#!/usr/bin/env python3
"""How often all ranks stop at the same step, and lose none, when a node is taken away.

preempt_bench.py [--trials N] [--step-ms MS] [--deaf]

Each trial is a job of two nodes with two workers each, which mark their steps with the lines of docs/PROGRESS.md and write
every step to a journal. One of the nodes, or both, get SIGTERM at some moment; then the job is run again. Good: all four ranks
stopped at one step, had taken every step before it and none after, and the next run began there. --deaf: the negative control,
workers that don't ask for stop steps. Exit status 1 if a trial isn't good.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))

from bed import Bed, free_port  # noqa: E402
from timeline import TimelineError  # noqa: E402

WORKER = os.path.join(ROOT, "tests", "support", "stopping_worker.py")
RANKS = 4
PREEMPTED = 75


class Trial:
    def __init__(self, step_ms, deaf):
        self.bed, self.step_ms, self.plans = Bed(), step_ms, ["deaf"] if deaf else []

    def start(self, steps):
        endpoint, meeting = free_port(), free_port()
        return [self.bed.run(name, ["--nnodes", 2, "--nproc_per_node", 2, "--rdzv_backend", "c10d",
                                    "--rdzv_endpoint", f"127.0.0.1:{endpoint}", "--rdzv_id", "preempt",
                                    "--rdzv_conf", f"is_host={host}", "--grace", "20",
                                    "--event_log", self.bed.events.path, WORKER, self.bed.journal.path, meeting,
                                    self.bed.folder, self.step_ms, steps, *self.plans])
                for name, host in (("host", 1), ("other", 0))]

    def run(self, rng):
        """What was wrong, the steps at which ranks stopped, and the seconds from the signal to the commit and the end."""
        agents = self.start(1000000)
        first = rng.randrange(5, 60)
        self.bed.wait(lambda: len(self.bed.journal.find("step", step=first)) == RANKS, f"step {first}", alive=agents)
        signalled = time.monotonic()
        for agent in rng.choice([agents[:1], agents[1:], agents]):
            agent.signal(15)
        statuses = [agent.wait(40) for agent in agents]
        ended = time.monotonic() - signalled
        self.bed.follower.refresh()
        committed = self.bed.events.find("stop_committed", who="service")
        agreed = committed[0]["t"] - signalled if committed else None
        taken = [[line["step"] for line in self.bed.journal.find("step", rank=rank)] for rank in range(RANKS)]
        stops = [line["step"] for line in self.bed.journal.find("stopped")]
        lasts = sorted({steps[-1] + 1 for steps in taken})
        wrong = self.judge(statuses, taken, stops)
        if not wrong:
            wrong = self.resume(stops[0])
        return wrong, lasts, agreed, ended

    @staticmethod
    def judge(statuses, taken, stops):
        if statuses != [PREEMPTED] * 2:
            return f"exit statuses {statuses}"
        if len(stops) != RANKS or len(set(stops)) != 1:
            return f"stopped at {stops}"
        for rank, steps in enumerate(taken):
            if steps != list(range(stops[0])):
                return f"rank {rank} took steps {steps[:2]}…{steps[-2:]} and stopped at {stops[0]}"
        return ""

    def resume(self, step):
        agents = self.start(step + 2)
        statuses = [agent.wait(40) for agent in agents]
        self.bed.follower.refresh()
        begun = [line["step"] for line in self.bed.journal.find("begin")][RANKS:]
        if statuses != [0, 0] or begun != [step] * RANKS:
            return f"the next run ended with {statuses} and began at {begun}, not {step}"
        return ""

    def close(self):
        self.bed.stop()
        self.bed.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=3, help="length of a step; default 3")
    parser.add_argument("--deaf", action="store_true", help="workers that ask for no stop step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures there")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    good, same, agreed, ended = 0, 0, [], []
    for number in range(arguments.trials):
        trial = Trial(arguments.step_ms, arguments.deaf)
        try:
            wrong, lasts, commit, end = trial.run(rng)
            same += len(lasts) == 1
            if commit is not None:
                agreed.append(commit * 1000)
            ended.append(end * 1000)
        except TimelineError as error:
            wrong = str(error)
        finally:
            trial.close()
        good += not wrong
        if wrong and not arguments.deaf:
            print(f"trial {number}: {wrong}", flush=True)
    figures = {"trials": arguments.trials, "same stop step on all ranks": same, "and no step lost": good}
    if agreed:
        figures["signal to agreement, median ms"] = round(statistics.median(agreed), 1)
        figures["signal to agreement, longest ms"] = round(max(agreed), 1)
    if ended:
        figures["signal to the end of the job, median ms"] = round(statistics.median(ended), 1)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as sink:
            json.dump(figures, sink, indent=1)
    return 0 if arguments.deaf or good == arguments.trials else 1


if __name__ == "__main__":
    sys.exit(main())
