#!/usr/bin/env python3
"""A training in small: saving_worker.py JOURNAL FOLDER STEP_MS STEPS

Every step is written down; rank 0 saves its number in FOLDER, and writes that down, too; the next start goes on there, whatever
has ended the one before. Ends with 0 after STEPS. Where FOLDER has a FIFO "hold", the last 10 steps wait until somebody has it
open for writing: a training on a busy machine may be over before the fault comes that it is for.
"""

import os
import sys
import threading

from worker import _NAMES, write_line

HELD = 10


def main():
    journal, folder, step_ms, steps = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    saved = os.path.join(folder, "saved")
    first = 0
    if os.path.exists(saved):
        with open(saved, encoding="utf-8") as source:
            first = int(source.read())
    facts = {"rank": rank, "world": world, "run": os.environ["TORCHELASTIC_RUN_ID"]}
    write_line(journal, "worker", host=os.uname().nodename, first=first, environment={n: os.environ.get(n) for n in _NAMES},
               omp=os.environ.get("OMP_NUM_THREADS"), **facts)
    hold = os.path.join(folder, "hold")
    for step in range(first, int(steps)):
        if step == int(steps) - HELD and os.path.exists(hold):
            open(hold, "rb").close()
        write_line(journal, "step", step=step, **facts)
        threading.Event().wait(float(step_ms) / 1000)
        if rank == 0:
            new = f"{saved}.{os.uname().nodename}.{os.getpid()}"  # two jobs of their own may save in one folder
            with open(new, "w", encoding="utf-8") as sink:
                sink.write(str(step + 1))
            os.replace(new, saved)
            write_line(journal, "saved", step=step + 1, **facts)
    write_line(journal, "done", **facts)


if __name__ == "__main__":
    main()
