#!/usr/bin/env python3
"""A training script of Lightning's users, which knows nothing of ddprun. Arguments: planned_script.py."""

import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.demos.boring_classes import BoringModel, RandomDataset

from planned_script import PlannedScript


class Model(BoringModel):
    def __init__(self, script):
        super().__init__()
        self.rows = RandomDataset(32, 4096), RandomDataset(32, 400)
        # Lightning 2.6's own sampler shuffles by a number of the epoch that is too large by one when it has resumed.
        self.sampler = torch.utils.data.DistributedSampler(self.rows[0], script.world, script.rank, shuffle=False)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.rows[0], batch_size=4, sampler=self.sampler)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(self.rows[1])


class Plan(lightning.Callback):
    def __init__(self, script):
        self.script = script

    def on_train_batch_start(self, trainer, *_):
        self.script.before(trainer.global_step + 1)

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.script.after(trainer.global_step, outputs["loss"].item())


def main():
    script = PlannedScript()
    lightning.seed_everything(1)
    saves = ModelCheckpoint(script.folder, save_last=True, every_n_epochs=1)
    trainer = lightning.Trainer(accelerator="cpu", devices=script.world, strategy="ddp", max_steps=script.steps,
                                limit_train_batches=script.each, logger=False, enable_progress_bar=False,
                                enable_model_summary=False, use_distributed_sampler=False, callbacks=[Plan(script), saves])
    trainer.fit(Model(script), ckpt_path="last")
    script.end()


if __name__ == "__main__":
    main()
