#!/usr/bin/env python3
"""A training script of Accelerate's users, which knows nothing of ddprun: two batches a step. Arguments: planned_script.py."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed

from planned_script import PlannedScript

BATCH, ACCUMULATED = 4, 2


class Squares(torch.utils.data.Dataset):
    def __init__(self, length):
        self.inputs = torch.randn(length, 16)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.inputs[index].square().sum(0, keepdim=True)


def newest(folder):
    """(steps, path) of what was saved last; (0, None) when nothing was."""
    return max(((int(name.partition("_")[2]), os.path.join(folder, name)) for name in os.listdir(folder)), default=(0, None))


def main():
    script = PlannedScript()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED,
                              dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    rows = Squares(script.each * ACCUMULATED * BATCH * script.world)
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True, num_workers=1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, script.steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step, path = newest(script.folder)
    if path:
        accelerator.load_state(path)
    while step < script.steps:
        loader.set_epoch(step // script.each)
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                if accelerator.sync_gradients:
                    script.before(step + 1)
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                script.after(step, loss.item())
        accelerator.save_state(os.path.join(script.folder, f"step_{step}"))
        accelerator.wait_for_everyone()
    script.end()


if __name__ == "__main__":
    main()
