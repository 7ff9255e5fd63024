"""The common part of the examples in plain PyTorch: options, order of samples, training loop, journal.

These programs do what worker/torch/session does: DistributedDataParallel over Gloo, with the same options, seed, weights, order
of samples and schedule, and a journal of the same form. Only the order comes from ddprun: its ElasticSampler's.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))
from ddprun.data import ElasticSampler  # noqa: E402

MASK = 2**64 - 1


class SplitMix:
    """Steele et al. 2014, as base/rng.h has it."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def batch_seed(seed, epoch, sample):
    """For the random changes of the batch whose first sample this is."""
    return SplitMix(SplitMix(SplitMix(seed).next() ^ epoch).next() ^ sample).next()


def parser(description, **defaults):
    """The options of worker/options/training_options.cc that a comparison needs."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--data")
    options.add_argument("--epochs", type=int)
    options.add_argument("--steps", type=int)
    options.add_argument("--batch_size", type=int)
    options.add_argument("--gradient_accumulation_steps", type=int)
    options.add_argument("--learning_rate", type=float)
    options.add_argument("--lr_schedule", choices=("constant", "linear", "cosine"))
    options.add_argument("--warmup_steps", type=int)
    options.add_argument("--weight_decay", type=float)
    options.add_argument("--max_grad_norm", type=float)
    options.add_argument("--mixed_precision", choices=("no", "fp16", "bf16"))
    options.add_argument("--backend")
    options.add_argument("--device", help="cpu, or cuda with the backend nccl")
    options.add_argument("--seed", type=int)
    options.add_argument("--threads", type=int)
    options.add_argument("--journal")
    shared = {"epochs": 1, "steps": 0, "batch_size": 32, "gradient_accumulation_steps": 1, "learning_rate": 1e-3,
              "lr_schedule": "linear", "warmup_steps": 0, "weight_decay": 0.0, "max_grad_norm": 0.0, "mixed_precision": "no",
              "backend": "gloo", "device": "cpu", "seed": 1, "threads": 1}
    options.set_defaults(**shared | defaults)
    return options


def rate_at(options, step, total):
    """ddprun::LearningRateSchedule: a linear warm-up, then down to a tenth."""
    peak, warm_up = options.learning_rate, options.warmup_steps
    if step < warm_up:
        return peak * (step + 1) / (warm_up + 1)
    if options.lr_schedule == "constant":
        return peak
    share = min(1.0, (step - warm_up) / max(1, total - warm_up))
    falling = 1 - share if options.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share))
    return peak * 0.1 + (peak - peak * 0.1) * falling


class Trainer:
    """model: a module. size: of the training samples. load(samples, generator): inputs and targets. loss(outputs, targets).
    evaluate(): a sentence about held-out samples, the same on all ranks."""

    def __init__(self, options, model, size, load, loss, evaluate):
        self.options, self.model, self.size, self.load, self.loss, self.evaluate = options, model, size, load, loss, evaluate
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(options.device)
        self.ddp = DistributedDataParallel(model.to(self.device), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay,
                                           fused=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.mixed_precision == "fp16")
        self.global_batch = options.batch_size * options.gradient_accumulation_steps * self.world
        self.steps_per_epoch = -(-size // self.global_batch)
        self.sampler = ElasticSampler(size, batch_per_rank=options.batch_size * options.gradient_accumulation_steps,
                                      seed=options.seed, rank=self.rank, world_size=self.world)
        self.total = options.steps or options.epochs * self.steps_per_epoch
        self.step, self.last_loss = 0, 0.0
        self.journal = open(options.journal, "a", encoding="utf-8") if options.journal and self.rank == 0 else None

    def done(self, epoch):
        return self.step >= self.total if self.options.steps else epoch >= self.options.epochs

    def run(self):
        epoch = 0
        while not self.done(epoch):
            self.train_epoch(epoch)
            epoch += 1
            if not self.done(epoch):
                self.tell(f"epoch {epoch}  step {self.step}  loss {self.last_loss:.4f}  ")
        self.tell("final ")
        if self.journal:
            self.journal.close()

    def tell(self, what):
        self.model.eval()
        with torch.no_grad():
            figure = self.evaluate()
        self.model.train()
        if self.rank == 0:
            print(f"{what}{figure} (step {self.step}, world {self.world})", flush=True)

    def train_epoch(self, epoch):
        for samples in self.sampler:
            if self.options.steps and self.step >= self.total:
                return
            self.train_step(epoch, samples, self.sampler.step().weight)
            self.sampler.commit()

    def train_step(self, epoch, of_step, weight):
        """A rank without samples would need more than this: there are enough for two in each step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.options, self.step, self.total)
        self.optimizer.zero_grad(set_to_none=False)
        accumulated = self.options.gradient_accumulation_steps
        self.last_loss = 0.0
        for i in range(accumulated):
            least, more = divmod(len(of_step), accumulated)
            begin = i * least + min(i, more)
            samples = of_step[begin:begin + least + (i < more)]
            share = len(samples) / len(of_step)
            seed = batch_seed(self.options.seed, epoch, samples[0])
            inputs, targets = self.load(samples, torch.Generator().manual_seed(seed))
            with contextlib.nullcontext() if i == accumulated - 1 else self.ddp.no_sync():
                with self.autocast():
                    loss = self.loss(self.ddp(inputs.to(self.device)), targets.to(self.device))
                self.scaler.scale(loss * (weight * share)).backward()
            self.last_loss += loss.item() * share
        self.step_optimizer()
        self.step += 1
        if self.journal:
            line = {"t": time.monotonic(), "rank": self.rank, "world": self.world, "step": self.step, "loss": self.last_loss,
                    "pid": os.getpid()}
            self.journal.write(json.dumps(line) + "\n")
            self.journal.flush()

    def autocast(self):
        types = {"fp16": torch.float16, "bf16": torch.bfloat16}
        wanted = types.get(self.options.mixed_precision)
        return torch.autocast(self.device.type, wanted) if wanted else contextlib.nullcontext()

    def step_optimizer(self):
        if self.options.max_grad_norm > 0:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def run(options, make):
    """Trains `make()`'s Trainer as one worker of the job that the environment names, and ends the process."""
    torch.set_num_threads(options.threads)
    dist.init_process_group(options.backend)
    torch.manual_seed(options.seed)
    make().run()
    # Gloo's threads abort the interpreter's end now and then.
    os._exit(0)
