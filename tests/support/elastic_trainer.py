"""A script with Hugging Face's Trainer that trains through failures: elastic_trainer.py JOURNAL [FORM]...

Each rank appends a line of JSON for each step that it has done, with the samples that it has learned from, and for each log; at
the end one with digests of all that training changes. Forms: NAME=VALUE sets an argument of TrainingArguments; plain (without
attach()), cnn (a model with batch norm and noise in the data instead of GPT-2), stop (EarlyStoppingCallback), stream (an
IterableDataset), resume (from the newest checkpoint), later (evaluates after train(), too), kill=RANK:MOMENT:STEP (once; the
moments are those of Moments), fetched (an error where a state doesn't come during a set-up), refusals (writes down what attach()
says of trainers that it can't keep), bare (the model isn't wrapped, as after an evaluation), counts (with cnn: the model counts
its passes), agreed (the ranks add up their numbers in their set-up), own (the model has a state_dict() of the script's, and the
Trainer a training_step()).
"""

import hashlib
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import (EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback,  # noqa: E402
                          TrainingArguments, set_seed)
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

from ddprun import elastic  # noqa: E402
from marked_phase import marked_phase  # noqa: E402

SAMPLES = 96


class Rows(torch.utils.data.Dataset):
    def __init__(self, length, seed):
        self.rows = torch.randint(64, (length, 12), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # Ranks have different numbers of items.
        row = self.rows[index].clone()
        labels = row.clone()
        labels[: index % 5] = -100
        return {"input_ids": row, "labels": labels, "number": index}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(Rows(SAMPLES, 1))


class Points(torch.utils.data.Dataset):
    """Each read adds noise."""

    def __init__(self, length, seed):
        self.points = torch.randn(length, 3, 8, 8, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(3, 8, 8) + 0.01 * random.random()
        return {"x": self.points[index] + noise, "labels": self.points[index].sum(), "number": index}


class Net(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.counts, self.passes = counts, 0
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1),
                                    nn.Linear(288, 1))

    def forward(self, x, labels=None):
        self.passes += self.counts
        out = self.layers(x).squeeze(-1)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


class Journal:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event,
                "rank": int(os.environ.get("RANK", 0)), "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.file, json.dumps(line).encode() + b"\n")


def timeless(logs):
    """Logs without what differs by a clock."""
    return {key: value for key, value in logs.items() if "per_second" not in key and "runtime" not in key}


class Moments(TrainerCallback):
    """Kills this process at a moment, once in a job; writes down steps and logs."""

    def __init__(self, script):
        self.script = script
        self.kills = [value.split(":") for value in script.values("kill")]

    def at(self, moment, step):
        for rank, what, when in self.kills:
            if (rank, what, when) == (os.environ.get("RANK", "0"), moment, str(step)):
                try:
                    os.close(os.open(f"{self.script.path}.{moment}{step}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

    def on_step_begin(self, args, state, control, **_):
        self.at("step", state.global_step)

    def on_substep_end(self, args, state, control, **_):
        self.at("substep", state.global_step)

    def on_pre_optimizer_step(self, args, state, control, **_):
        self.at("clipped", state.global_step)

    def on_optimizer_step(self, args, state, control, **_):
        self.at("updated", state.global_step)

    def on_step_end(self, args, state, control, **_):
        trainer = self.script.trainer
        self.script.journal.write("step", step=state.global_step, phase=marked_phase(), samples=trainer.seen,
                                  loss=float(trainer._tr_loss).hex(), rate=trainer.optimizer.param_groups[0]["lr"])
        trainer.seen = []
        self.at("stepped", state.global_step)

    def on_log(self, args, state, control, logs=None, **_):
        self.at("log", state.global_step)
        self.script.journal.write("log", step=state.global_step, logs=timeless(logs))

    def on_prediction_step(self, args, state, control, **_):
        self.at("prediction", state.global_step)

    def on_evaluate(self, args, state, control, **_):
        self.at("evaluated", state.global_step)

    def on_epoch_begin(self, args, state, control, **_):
        self.script.journal.write("epoch", epoch=state.epoch)

    def on_epoch_end(self, args, state, control, **_):
        self.at("epoch", state.global_step)

    def on_train_end(self, args, state, control, **_):
        self.at("end", state.global_step)


class Counting(Trainer):
    """Has counters of its own, as TRL's trainers do."""

    seen, total, trains = [], 0, 0

    def train(self, *arguments, **named):
        self.trains += 1
        return super().train(*arguments, **named)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None, **named):
        inputs = dict(inputs)
        numbers = inputs.pop("number").tolist()
        if model.training:
            self.seen = self.seen + numbers
            self.total += int(self.accelerator.gather(torch.tensor([len(numbers)])).sum())
            if self.script.moments.kills:
                self.script.moments.at("forward", self.state.global_step)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch, **named)

    def _save_rng_state(self, output_dir):
        if self.script.moments.kills:
            self.script.moments.at("save", self.state.global_step)
        super()._save_rng_state(output_dir)


class Script:
    def __init__(self, path, forms):
        self.path, self.forms, self.journal = path, forms, Journal(path)
        torch.set_num_threads(1)
        if "plain" not in forms:
            elastic.init_process_group()
        set_seed(1)
        is_net = "cnn" in forms
        data = Points if is_net else Rows
        arguments = {"output_dir": path + ".saved", "per_device_train_batch_size": 4, "num_train_epochs": 2,
                     "learning_rate": 1e-3, "warmup_steps": 3, "lr_scheduler_type": "cosine", "logging_steps": 3,
                     "save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 1,
                     "remove_unused_columns": False, "label_names": ["labels"],
                     **{name: self.read(value) for name, value in (form.split("=") for form in forms if "=" in form)
                        if name != "kill"}}
        self.moments = Moments(self)
        callbacks = [self.moments, *([EarlyStoppingCallback(1)] if "stop" in forms else [])]
        self.trainer = Counting(
            model=Net("counts" in forms) if is_net else GPT2LMHeadModel(
                GPT2Config(vocab_size=64, n_positions=12, n_embd=16, n_layer=2, n_head=2)),
            args=TrainingArguments(**arguments), train_dataset=Stream() if "stream" in forms else data(SAMPLES, 1),
            eval_dataset=data(20, 2), callbacks=callbacks)
        self.trainer.script = self
        self.agreed = torch.tensor([1 + self.trainer.args.process_index])
        if "agreed" in forms:
            torch.distributed.all_reduce(self.agreed)
        if "own" in forms:
            self.step, self.trainer.model.state_dict = self.trainer.training_step, lambda *_, **__: {}
            self.trainer.training_step = self.own_step
        if "bare" in forms:
            self.trainer.accelerator.prepare_model(self.trainer.model, evaluation_mode=True)
        self.run = None if "plain" in forms else elastic.attach(self.trainer)
        if "fetched" in forms:
            sys.modules["ddprun.elastic.trainer"].broadcast = None

    def own_step(self, *arguments, **named):
        return self.step(*arguments, **named)

    @staticmethod
    def read(value):
        try:
            return json.loads(value)
        except ValueError:
            return value

    def values(self, name):
        return [form[len(name) + 1:] for form in self.forms if form.startswith(name + "=")]

    def train(self):
        checkpoint = get_last_checkpoint(self.path + ".saved") if "resume" in self.forms else None
        self.trainer.train(resume_from_checkpoint=checkpoint)
        trainer = self.trainer
        if "later" in self.forms:
            trainer.evaluate()
        self.journal.write("end", step=trainer.state.global_step, digests=self.digests(), total=trainer.total,
                           trains=trainer.trains, agreed=self.agreed.item(), is_own=trainer.training_step == self.own_step,
                           history=[timeless(one) for one in trainer.state.log_history],
                           best=os.path.basename(trainer.state.best_model_checkpoint or ""), flos=trainer.state.total_flos,
                           recoveries=[list(one) for one in self.run.recoveries] if self.run else [])
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def digests(self):
        trainer = self.trainer
        optimizer = trainer.optimizer.state_dict()
        return {"model": digest(nn.Module.state_dict(trainer.model).values()),
                "optimizer": digest(value for state in optimizer["state"].values() for value in state.values()),
                "scheduler": repr([trainer.lr_scheduler.state_dict(), optimizer["param_groups"]])}


def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(torch.as_tensor(tensor).detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def refusals(path):
    journal = Journal(path)
    elastic.init_process_group()
    for what, changed in (
            ("stream", {}), ("auto_find_batch_size", {"auto_find_batch_size": True}), ("compile", {"torch_compile": True}),
            ("dispatch", {"accelerator_config": {"dispatch_batches": True}})):
        args = TrainingArguments(path + ".saved", use_cpu=True, report_to="none", max_steps=1, **changed)
        trainer = Trainer(model=Net(False), args=args, train_dataset=Stream() if what == "stream" else Points(4, 1))
        try:
            elastic.attach(trainer)
        except ValueError as error:
            journal.write("refused", what=what, why=str(error))


if __name__ == "__main__":
    if "refusals" in sys.argv:
        refusals(sys.argv[1])
    else:
        Script(sys.argv[1], sys.argv[2:]).train()
