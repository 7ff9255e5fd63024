#!/usr/bin/env python3
"""A training script with the Trainer of Hugging Face's transformers, which knows nothing of ddprun: a small GPT-2, two batches a
step. Arguments: planned_script.py."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from planned_script import PlannedScript


class Rows(torch.utils.data.Dataset):
    def __init__(self, length):
        self.rows = torch.randint(64, (length, 16))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Plan(TrainerCallback):
    def __init__(self, script):
        self.script = script

    def on_step_begin(self, args, state, control, **_):
        self.script.before(state.global_step + 1)

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.script.after(state.global_step, logs["loss"])


def main():
    script = PlannedScript()
    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir=script.folder, max_steps=script.steps, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        logging_steps=1, save_steps=script.each, eval_strategy="steps", eval_steps=script.each, dataloader_num_workers=1,
        use_cpu=True, seed=1, report_to="none", disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows(4096), eval_dataset=Rows(64), callbacks=[Plan(script)])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(script.folder))
    script.end()


if __name__ == "__main__":
    main()
