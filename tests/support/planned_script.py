"""What training scripts of tests have beside what people's scripts have: they write down each step's loss, and what their
arguments say goes wrong there.

SCRIPT JOURNAL STEPS STEP_MS EACH [PLAN…]    EACH: steps from one save, and evaluation, to the next; a PLAN is one of
unmodified_worker.py. What is saved is in the folder JOURNAL.saved, from where a new attempt goes on.
"""

import os
import sys

import torch.distributed as dist

from unmodified_worker import carry_out, due, stand
from worker import write_line


class PlannedScript:
    def __init__(self):
        self.journal, steps, step_ms, each, *self.plans = sys.argv[1:]
        self.steps, self.each = int(steps), int(each)
        self.step_seconds = float(step_ms) / 1000
        self.folder = self.journal + ".saved"
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        os.makedirs(self.folder, exist_ok=True)

    def before(self, step):
        """Steps are counted from 1."""
        for what, seconds in due(self.plans, self.rank, step):
            carry_out(what, seconds, None, self.journal)
        stand(self.step_seconds)

    def after(self, step, loss):
        write_line(self.journal, "loss", rank=self.rank, attempt=self.attempt, step=step, loss=loss)

    def end(self):
        write_line(self.journal, "trained", rank=self.rank, attempt=self.attempt)
        dist.barrier()
        os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends
