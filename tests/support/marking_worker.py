#!/usr/bin/env python3
"""A worker that marks its progress with the lines of docs/PROGRESS.md and meets the others after each step.

marking_worker.py JOURNAL PORT STEP_MS STEPS [RANK@STEP=KIND]…

Ranks meet at rank 0, which listens on PORT of MASTER_ADDR: a rank that is late or hangs holds up all, as a
collective does. At STEP of the first attempt RANK does KIND: spin, read (waits for ever), slower (sleeps ten times as long from
then on), checkpoint (a second, marked as such), stop (SIGSTOP). RANK * is all. "unmarked" among the plans marks nothing,
with "alone" no rank waits for the others, and one that was held up catches up, with "reports" all report a loss of rank + 0.5,
and 1000 samples a second.
Writes a "step" line at every hundredth step and at the last one.
"""

import os
import re
import signal
import socket
import sys
import threading
import time

from worker import _NAMES, write_line

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def work(seconds):
    """Stands for what a worker does in a step: the time that it takes is what a test is about."""
    threading.Event().wait(seconds)


class Pace:
    """Steps by the clock: after the machine was busy, a rank that waits for no other catches up."""

    def __init__(self):
        self.due = time.monotonic()

    def work(self, seconds):
        self.due += seconds
        work(max(0, self.due - time.monotonic()))


def snippet(of="def mark("):
    """The first Python block of the docs' page that has this."""
    with open(os.path.join(ROOT, "docs", "PROGRESS.md"), encoding="utf-8") as page:
        return next(block for block in re.findall(r"```python\n(.*?)```", page.read(), re.DOTALL) if of in block)


class Meeting:
    """All ranks wait for each other; the waiting is a read from a socket."""

    def __init__(self, rank, world, address):
        self.rank = rank
        if rank == 0:
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("", address[1]))
                listener.listen(world)
                self.peers = [listener.accept()[0] for _ in range(world - 1)]
        else:
            self.peers = [self.connect(address)]

    @staticmethod
    def connect(address):
        while True:  # rank 0 may not listen yet
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                work(0.01)

    def meet(self):
        for peer in self.peers:
            if self.rank != 0:
                peer.send(b"x")
            if not peer.recv(1):
                sys.exit(4)
        if self.rank == 0:
            for peer in self.peers:
                peer.send(b"x")


def misbehave(kind):
    if kind == "spin":
        while True:
            pass
    elif kind == "read":
        os.read(os.pipe()[0], 1)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)


def main():
    journal, port, step_ms, steps, *plans = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    marks = {}
    exec(snippet(), marks)  # pylint: disable=exec-used
    if "reports" in plans:
        exec(snippet("def report("), marks)  # pylint: disable=exec-used
        marks["report"](rank + 0.5, 1000)
    mark = (lambda *_: None) if "unmarked" in plans else marks["mark"]
    pause = float(step_ms) / 1000
    write_line(journal, "worker", host=os.uname().nodename, environment={n: os.environ.get(n) for n in _NAMES},
               generation=int(os.environ["DDPRUN_GENERATION"]), rank=rank, world=world,
               group_rank=int(os.environ["GROUP_RANK"]), restart_count=attempt, arguments=plans)
    mark(marks["START"], 0)
    meeting = None if "alone" in plans else Meeting(rank, world, (os.environ["MASTER_ADDR"], int(port)))
    do_step = Pace().work if meeting is None else work
    for step in range(1, int(steps) + 1):
        mark(marks["TRAIN"], step)
        for plan in plans if attempt == 0 else ():
            who, _, kind = plan.partition("=")
            if kind and who in (f"{rank}@{step}", f"*@{step}"):
                write_line(journal, "plan", kind=kind, rank=rank)
                if kind == "slower":
                    pause *= 10
                elif kind == "checkpoint":
                    mark(marks["CHECKPOINT"], step)
                    work(1)
                misbehave(kind)
        do_step(pause)
        if meeting is not None:
            meeting.meet()
        if step % 100 == 0 or step == int(steps):
            write_line(journal, "step", step=step, rank=rank, attempt=attempt)
    mark(marks["DONE"], int(steps))


if __name__ == "__main__":
    main()
