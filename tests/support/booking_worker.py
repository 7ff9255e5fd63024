#!/usr/bin/env python3
"""A worker that trains in lockstep with the others and writes down how long everything took, for docs/GOODPUT.md.

booking_worker.py JOURNAL PORT STEPS STATE

Waits for data, takes a step and meets the others, again and again; every SAVE_EVERY steps rank 0 saves to STATE while
the others wait, and a restart goes on from there. Marks by the module `ddprun`. Rank 0 writes a "spent" line for each step:
seconds of data wait, step and saving, and when the step began.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import ddprun  # noqa: E402
from marking_worker import Meeting, work  # noqa: E402
from worker import _NAMES, write_line  # noqa: E402

START, STEP, DATA, SAVE = 0.15, 0.010, 0.004, 0.06
SAVE_EVERY = 40


def saved_step(path):
    """The step that was saved last; 0 = none."""
    try:
        with open(path, encoding="ascii") as source:
            return int(source.read())
    except FileNotFoundError:
        return 0


def save(path, step):
    with open(path + ".new", "w", encoding="ascii") as sink:
        sink.write(str(step))
    os.replace(path + ".new", path)
    work(SAVE)


def batches(count):
    for _ in range(count):
        work(DATA)
        yield None


def main():
    journal, port, steps, state = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    generation = int(os.environ["DDPRUN_GENERATION"])
    write_line(journal, "worker", host=os.uname().nodename, environment={n: os.environ.get(n) for n in _NAMES},
               generation=generation, rank=rank, world=world, group_rank=int(os.environ["GROUP_RANK"]),
               restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]), arguments=[])
    meeting = Meeting(rank, world, (os.environ["MASTER_ADDR"], int(port)))
    work(START)
    step = saved_step(state)
    meeting.meet()
    step += 1
    ddprun.mark(ddprun.Phase.TRAIN, step)
    began = time.monotonic()
    asked = began
    for _ in ddprun.timed(batches(int(steps) - step + 1)):
        got = time.monotonic()
        work(STEP)
        meeting.meet()
        done = time.monotonic()
        saving = step % SAVE_EVERY == 0
        if saving:
            ddprun.mark(ddprun.Phase.CHECKPOINT, step)
            if rank == 0:
                save(state, step)
            meeting.meet()
        ended = time.monotonic()
        if rank == 0:
            write_line(journal, "spent", generation=generation, step=step, began=began, data=got - asked, save=ended - done,
                       work=ended - began - (got - asked) - (ended - done))
        step += 1
        ddprun.mark(ddprun.Phase.TRAIN if step <= int(steps) else ddprun.Phase.DONE, step)
        began = asked = time.monotonic()


if __name__ == "__main__":
    main()
