#!/usr/bin/env python3
"""Runs many programs of odd_programs.py at a time, which mostly wait: with ddprun's default options, or with torchrun.

crowd.py --seed 1 --count 300 [--torchrun] [--jobs 12] [OPTION…]    OPTIONs of ddprun; prints the script of each that fails
"""

import argparse
import dataclasses
import os
import re
import select
import sys
import time

from odd_programs import draw_program
from python_bed import SLOW, TORCH_PYTHON, Bed, torch_ahead

TORCHRUN = os.path.join(os.path.dirname(TORCH_PYTHON), "torchrun")
# What torch_ahead() is to import for them, beside torch.
IMPORTS = ("torch.nn.parallel", "torch.utils.data")
AT_A_TIME = 12
START = 60  # seconds for torch's imports, on a busy machine


@dataclasses.dataclass
class Outcome:
    program: object
    status: int  # None: it still ran when its time was over
    finals: set
    seconds: float
    text: str
    events: list
    torchrun: bool

    def completed(self):
        return self.status == 0 and self.finals == set(range(self.program.world))

    def of(self, event):
        return [line for line in self.events if line["event"] == event]

    def __str__(self):
        what = "FINAL" if self.completed() else f"status {self.status}, FINAL of {sorted(self.finals)}"
        return f"{what} after {self.seconds:.1f} s: {self.program}"


class Job:
    def __init__(self, program, options=(), torchrun=False):
        """`options` of ddprun, beside its defaults."""
        self.program, self.torchrun = program, torchrun
        self.bed = Bed()
        self.bed.environment.pop("PYTHON_EXEC", None)
        self.bed.forget_warm()
        script = self.bed.write("program.py", program.text(), 0o755)
        words = ["--standalone", "--nproc_per_node", str(program.world), *options]
        command = [script]
        if program.no_python:
            words.append("--no_python")
            command = [script] if program.native else [TORCH_PYTHON, script]
        if torchrun:
            self.process = self.bed.start_process("torchrun", [TORCHRUN, *words, *command], output=self.bed.path("torchrun.out"),
                                                  env=self.bed.environment)
        else:
            ahead = [] if program.no_python else torch_ahead(*IMPORTS)
            self.process = self.bed.run("ddprun", [*words, *ahead, "--event_log", self.bed.events.path, *command],
                                        env={"PYTHON_EXEC": TORCH_PYTHON})
        self.began = time.monotonic()
        self.until = self.began + 2 * program.seconds + START * SLOW

    def look(self):
        """After each change of its output or events."""
        self.bed.follower.clear()
        self.bed.follower.refresh()

    def end(self):
        """Returns the job's outcome; a job that still runs is stopped."""
        seconds = time.monotonic() - self.began
        status = self.process.returncode if self.process.ended() else None
        self.bed.follower.refresh()
        events = list(self.bed.events.lines)
        text = self.process.text()
        self.bed.stop()
        self.bed.close()
        finals = {int(rank) for rank in re.findall(r"^FINAL (\d+)$", text, re.MULTILINE)}
        return Outcome(self.program, status, finals, seconds, text, events, self.torchrun)


def run(programs, start=Job, at_a_time=AT_A_TIME):
    """The outcome of each program, as they end."""
    waiting, jobs = list(programs), []
    try:
        while waiting or jobs:
            while waiting and len(jobs) < at_a_time:
                jobs.append(start(waiting.pop(0)))
            poll = select.poll()
            for job in jobs:
                poll.register(job.process.pidfd, select.POLLIN)
                poll.register(job.bed.follower.fileno(), select.POLLIN)
            poll.poll(max(0, min(job.until for job in jobs) - time.monotonic()) * 1000)
            for job in list(jobs):
                job.look()
                if job.process.ended() or job.until <= time.monotonic():
                    jobs.remove(job)
                    yield job.end()
    finally:
        for job in jobs:
            job.end()


def shrunk(program, fails):
    """The same program with as few oddities as it still fails with."""
    index = 0
    while index < len(program.oddities):
        smaller = program.without(index)
        if fails(smaller):
            program = smaller
        else:
            index += 1
    return program


def failures(programs, options=(), say=print):
    """(outcome, the smallest program that fails so) of each that doesn't complete."""
    def start(program):
        return Job(program, options)

    found = []
    for outcome in run(programs, start):
        say(str(outcome))
        if not outcome.completed():
            smallest = shrunk(outcome.program, lambda program: not next(run([program], start)).completed())
            say(f"{outcome.text}\n{smallest}\n{smallest.text()}")
            found.append((outcome, smallest))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=AT_A_TIME)
    parser.add_argument("--torchrun", action="store_true", help="with torchrun alone")
    arguments, options = parser.parse_known_args()
    programs = [draw_program(seed) for seed in range(arguments.seed, arguments.seed + arguments.count)]
    if arguments.torchrun:
        bad = 0
        for outcome in run(programs, lambda program: Job(program, options, True), arguments.jobs):
            print(outcome, flush=True)
            bad += not outcome.completed()
    else:
        bad = len(failures(programs, options, lambda text: print(text, flush=True)))
    print(f"{bad} of {len(programs)} didn't complete")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
