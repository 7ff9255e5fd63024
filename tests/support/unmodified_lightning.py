#!/usr/bin/env python3
"""A training script of Lightning's users, which knows nothing of ddprun: validates and saves each 40 steps.

unmodified_lightning.py JOURNAL STEPS STEP_MS [RANK@STEP=PLAN]    PLAN: a hang of unmodified_worker.py, in the first attempt
"""

import os
import re
import sys
import tempfile

import pytorch_lightning as lightning
import torch
from pytorch_lightning.demos.boring_classes import BoringModel, RandomDataset

from unmodified_worker import carry_out, stand
from worker import write_line


class Model(BoringModel):
    def train_dataloader(self):
        return torch.utils.data.DataLoader(RandomDataset(32, 1 << 16))

    def val_dataloader(self):
        return torch.utils.data.DataLoader(RandomDataset(32, 400))


class Plan(lightning.Callback):
    def __init__(self, journal, step_ms, plan):
        self.journal, self.step_ms = journal, step_ms
        self.plan = re.fullmatch(r"(\d+)@(\d+)=(\w+)", plan).groups() if plan else None

    def on_train_batch_start(self, trainer, *_):
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if self.plan and first and self.plan[:2] == (str(trainer.global_rank), str(trainer.global_step + 1)):
            carry_out(self.plan[2], 0, None, self.journal)
        stand(self.step_ms / 1000)


def main():
    journal, steps, step_ms, *plan = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=int(steps), val_check_interval=40,
                                    default_root_dir=folder, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                    callbacks=[Plan(journal, float(step_ms), plan[0] if plan else None)])
        trainer.fit(Model())
        write_line(journal, "trained", rank=trainer.global_rank, attempt=int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
        torch.distributed.barrier()
    os._exit(0)  # torch 2.11 aborts now and then when gloo's threads still run while the interpreter ends


if __name__ == "__main__":
    main()
