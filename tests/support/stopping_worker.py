#!/usr/bin/env python3
"""A worker that marks its progress and stops where all ranks do, with the lines of docs/PROGRESS.md.

stopping_worker.py JOURNAL PORT FOLDER STEP_MS STEPS [deaf] [save=SECONDS] [fail-saving=RANK] [term=SECONDS]

Ranks meet after each step, as a collective does (marking_worker.py). What is saved at the stop step is one number for each
rank in FOLDER, where the next run goes on. Journal: "begin", a "step" line for each step before it is taken, "stopped"
at the stop step, "saved", "got" for a SIGTERM, which ends the program; with `term` it first saves for so long
("saved-late"). `deaf` knows nothing of stop steps.
"""

import os
import re
import signal
import sys
import threading

from marking_worker import ROOT, Meeting
from worker import _NAMES, write_line


def blocks():
    """The Python blocks of the docs' page."""
    with open(os.path.join(ROOT, "docs", "PROGRESS.md"), encoding="utf-8") as page:
        return re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL)


class Program:
    def __init__(self):
        self.journal, port, self.folder, step_ms, steps, *self.plans = sys.argv[1:]
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.pause, self.steps = float(step_ms) / 1000, int(steps)
        self.generation = int(os.environ["DDPRUN_GENERATION"])
        lines = {}
        for block in blocks():
            exec(block, lines)  # pylint: disable=exec-used
        self.stop_at = (lambda _: False) if "deaf" in self.plans else lines["stop_at"]
        self.plan = dict(plan.split("=") for plan in self.plans if "=" in plan)
        signal.signal(signal.SIGTERM, self.on_term)
        self.write("worker", host=os.uname().nodename, environment={n: os.environ.get(n) for n in _NAMES},
                   world=self.world, restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
        self.meeting = Meeting(self.rank, self.world, (os.environ["MASTER_ADDR"], int(port)))

    def write(self, event, **fields):
        write_line(self.journal, event, rank=self.rank, generation=self.generation, **fields)

    def on_term(self, number, _):
        self.write("got", signal=number)
        if "term" in self.plan:
            threading.Event().wait(float(self.plan["term"]))
            self.write("saved-late")
        os._exit(128 + number)

    def file(self, rank):
        return os.path.join(self.folder, f"saved-{rank}")

    def first_step(self):
        try:
            with open(self.file(0), encoding="utf-8") as source:
                return int(source.read())
        except FileNotFoundError:
            return 0

    def save(self, step):
        self.write("stopped", step=step)
        if self.plan.get("fail-saving") == str(self.rank):
            sys.exit(5)
        threading.Event().wait(float(self.plan.get("save", 0)))
        with open(self.file(self.rank) + ".new", "w", encoding="utf-8") as sink:
            sink.write(str(step))
        os.replace(self.file(self.rank) + ".new", self.file(self.rank))
        self.write("saved", step=step)

    def run(self):
        first = self.first_step()
        self.write("begin", step=first)
        for step in range(first, self.steps):
            if self.stop_at(step):
                self.save(step)
                return
            self.write("step", step=step)
            threading.Event().wait(self.pause)
            self.meeting.meet()


if __name__ == "__main__":
    Program().run()
