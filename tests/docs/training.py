#!/usr/bin/env python3
"""What the pages call train.py: marks a step each 10 ms, saves each tenth, stops at one step, ends when there is a file `done`.

With STEPS in the environment it ends after so many. Prints a line each hundredth step, as a training does.
"""

import os
import sys
import threading

import ddprun


def saved():
    try:
        with open("step", encoding="ascii") as source:
            return int(source.read())
    except (FileNotFoundError, ValueError):
        return 0


def save(step):
    with open(f"step.{os.getpid()}", "w", encoding="ascii") as sink:
        sink.write(str(step))
    os.replace(f"step.{os.getpid()}", "step")


def main():
    rank = int(os.environ["RANK"])
    step, last = saved() + 1, int(os.environ.get("STEPS", sys.maxsize))
    while step <= last and not os.path.exists("done"):
        if ddprun.stop_at(step):
            save(step - 1)
            return
        ddprun.report(loss=0.41, samples_per_second=1000.0)
        threading.Event().wait(0.01)
        if step % 10 == 0:
            ddprun.mark(ddprun.Phase.CHECKPOINT, step)
            if rank == 0:
                save(step)
            threading.Event().wait(0.02)
        if step % 100 == 20:
            print(f"step {step} loss 0.41", flush=True)
        step += 1


if __name__ == "__main__":
    main()
