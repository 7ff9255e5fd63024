"""A training script of Lightning's that trains through failures: elastic_lightning.py JOURNAL FOLDER [FORM]...

Each rank appends a line of JSON for each step that it has done, and at the end one with a digest of all that must be equal.
Forms: accumulate, bf16, workers (of the DataLoader), often (validates thrice an epoch), metrics (torchmetrics', and Lightning's
bar and LearningRateMonitor), early (stops by EarlyStopping), resume (from FOLDER/given.ckpt), save (leaves that file after step
20, and ends before step 40), lightning (the package lightning.pytorch), plain (Lightning's own strategy), module (a
LightningDataModule in a variable), lazy (the first pass makes an attribute), outputs (the module keeps its steps' outputs),
average (a hook averages the parameters after each update), and what is refused: manual, iterable, random, swa, several, lbfgs,
sum, closure (optimizer_step() calls it), asked (a callback has its state from the first validation on).
"""

import copy
import hashlib
import json
import logging
import os
import signal
import sys
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torchmetrics  # noqa: E402
from torch import nn  # noqa: E402

FORMS = set(sys.argv[3:])
if "lightning" in FORMS:
    import lightning.pytorch as pl  # noqa: E402
    from lightning.pytorch import callbacks, loggers  # noqa: E402
else:
    import pytorch_lightning as pl  # noqa: E402
    from pytorch_lightning import callbacks, loggers  # noqa: E402

from ddprun import elastic  # noqa: E402
from marked_phase import marked_phase  # noqa: E402

# GENERATION:RANK:EVENT:STEP: that rank ends itself when it has written that line.
KILLS = os.environ.get("ELASTIC_KILLS", "").split(",")
SIZE, BATCH, EPOCHS = 180, 4, int(os.environ.get("ELASTIC_EPOCHS", "3"))


class Data(torch.utils.data.Dataset):
    def __init__(self, size, seed):
        self.values = torch.randn(size, 16, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return index, self.values[index]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(Data(SIZE, 1))


class Journal:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event, **what):
        """In one piece: others write to the same file."""
        line = {"t": time.monotonic(), "pid": os.getpid(), "who": "worker", "event": event, "rank": int(os.environ["RANK"]),
                "generation": int(os.environ.get("DDPRUN_GENERATION", "0")), **what}
        os.write(self.file, json.dumps(line).encode() + b"\n")
        if f"{os.environ.get('DDPRUN_GENERATION')}:{line['rank']}:{event}:{what.get('step')}" in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)


class Model(pl.LightningModule):
    def __init__(self, journal):
        super().__init__()
        self.journal = journal
        self.automatic_optimization = "manual" not in FORMS
        dropout = nn.Dropout(0.0 if "calm" in FORMS else 0.2)
        self.net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), dropout, nn.Linear(64, 1))

        if "metrics" in FORMS:
            self.mean = torchmetrics.MeanMetric()
        if "growing" in FORMS:
            self.all = torchmetrics.CatMetric()
        if "average" in FORMS:
            self.averaged = copy.deepcopy(self.net).requires_grad_(False)
        self.outputs, self.mask = [], None

    def loss_of(self, batch):
        if "lazy" in FORMS and self.mask is None:
            self.mask = torch.ones(1)
        return (self.net(batch[1]).squeeze(-1) - batch[1].sum(-1)).pow(2).mean()

    def training_step(self, batch, number):
        loss = self.loss_of(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("shared", loss, on_step=True, on_epoch=True, sync_dist=True)
        if "metrics" in FORMS:
            self.mean.update(loss.detach(), weight=number + 1)
            self.log("mean", self.mean, on_step=False, on_epoch=True)
        if "growing" in FORMS:
            self.all.update(loss.detach())
        if "outputs" in FORMS:
            self.outputs.append(loss.item())
        self.journal.write("pass", step=self.trainer.global_step, loss=loss.item().hex(), samples=batch[0].tolist())
        return loss

    def validation_step(self, batch, number):
        self.log("val", self.loss_of(batch), sync_dist=True)
        self.log("val_own", self.loss_of(batch))
        self.journal.write("validation", number=number, step=self.trainer.global_step)

    if "closure" in FORMS:
        def optimizer_step(self, epoch, number, optimizer, closure):
            closure()
            optimizer.step()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedulers = [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9), "interval": "step"},
                      {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1), "monitor": "val"}]
        if "lbfgs" in FORMS:
            return torch.optim.LBFGS(self.parameters())
        if "several" in FORMS:
            return [optimizer, torch.optim.SGD(self.parameters(), lr=1e-3)]
        return [optimizer], schedulers

    def train_dataloader(self):
        if "iterable" in FORMS:
            return torch.utils.data.DataLoader(Stream(), batch_size=BATCH)
        data = Data(SIZE, 1)
        if "random" in FORMS:
            sampler = torch.utils.data.WeightedRandomSampler([1.0] * SIZE, SIZE)
            return torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)
        return torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2 if "workers" in FORMS else 0)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(Data(48, 2), batch_size=BATCH)


class DataOf(pl.LightningDataModule):
    """The model's."""

    def __init__(self, model):
        super().__init__()
        self.train_dataloader, self.val_dataloader = model.train_dataloader, model.val_dataloader

    def prepare_data(self):
        """Lightning makes a group of Gloo's around it."""


class Watch(callbacks.Callback):
    """Writes what a user would see, and has a state and a collective of its own."""

    def __init__(self, journal):
        self.journal, self.batches, self.total = journal, 0, 0.0

    def state_dict(self):
        if "asked" in FORMS:
            return {"best": self.best}
        return {"batches": self.batches, "total": self.total}

    def load_state_dict(self, state):
        self.batches, self.total = state["batches"], state["total"]

    def on_fit_start(self, trainer, module):
        copy.deepcopy(module)  # as for an average of the parameters

    def on_train_start(self, trainer, module):
        name = trainer.strategy.broadcast(f"run {os.getpid()}" if trainer.is_global_zero else None)
        self.journal.write("ready", name=name, step=trainer.global_step)

    def on_train_epoch_start(self, trainer, module):
        number = torch.tensor([1.0 + trainer.global_rank])
        dist.all_reduce(number)
        self.total += number.item()
        self.journal.write("epoch", step=trainer.global_step, epoch=trainer.current_epoch, number=number.item())

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.batches += 1
        if "average" in FORMS:
            for mean, value in zip(module.averaged.parameters(), module.net.parameters()):
                mean.lerp_(value.detach(), 0.1)
        if "sum" in FORMS:
            module.log("late", outputs["loss"], on_epoch=True)
        self.journal.write("step", step=trainer.global_step, phase=marked_phase(), epoch=trainer.current_epoch,
                           loss=outputs["loss"].item().hex(),
                           shown={name: value.item().hex() for name, value in sorted(trainer.callback_metrics.items())},
                           samples=batch[0].tolist())

    def on_train_epoch_end(self, trainer, module):
        module.log("batches", float(self.batches), sync_dist=True)

    def on_validation_end(self, trainer, module):
        self.journal.write("validated", step=trainer.global_step, value=trainer.callback_metrics["val"].item().hex()
                           if "val" in trainer.callback_metrics else None)

    def on_save_checkpoint(self, trainer, module, checkpoint):
        self.journal.write("saving", step=trainer.global_step)


def digest(trainer, model, watch):
    whole = hashlib.sha256()
    for value in model.state_dict().values():
        whole.update(value.numpy().tobytes())
    for values in trainer.optimizers[0].state_dict()["state"].values():
        for value in values.values():
            whole.update(value.numpy().tobytes())
    facts = [trainer.global_step, trainer.current_epoch, len(model.outputs), watch.state_dict(),
             trainer.optimizers[0].param_groups[0]["lr"],
             [{key: value for key, value in one.scheduler.state_dict().items()} for one in trainer.lr_scheduler_configs],
             trainer.fit_loop.state_dict(), sorted((name, value.item()) for name, value in trainer.callback_metrics.items()
                                                   if name in ("val", "shared_epoch", "batches", "mean")),
             [os.path.basename(trainer.checkpoint_callback.best_model_path),
              {os.path.basename(name): value.item() for name, value in trainer.checkpoint_callback.best_k_models.items()}]]
    whole.update(repr(facts).encode())
    return whole.hexdigest(), facts


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("pytorch_lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    journal, folder = Journal(sys.argv[1]), sys.argv[2]
    pl.seed_everything(3, verbose=False)
    watch = Watch(journal)
    saves = callbacks.ModelCheckpoint(folder, filename="{epoch}-{step}", monitor="val", save_top_k=2, save_last=True)
    more = []
    if "metrics" in FORMS:
        more.append(callbacks.LearningRateMonitor())
    if "early" in FORMS:
        more.append(callbacks.EarlyStopping("val", patience=0, min_delta=100.0))
    if "swa" in FORMS:
        more.append(callbacks.StochasticWeightAveraging(1e-2))
    if "save" in FORMS:
        more.append(callbacks.ModelCheckpoint(folder, filename="given", every_n_train_steps=20, enable_version_counter=False))
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")), max_epochs=EPOCHS - ("save" in FORMS),
        strategy="ddp" if "plain" in FORMS else elastic.DDPStrategy(),
        accumulate_grad_batches=2 if "accumulate" in FORMS else 1, gradient_clip_val=1.0, log_every_n_steps=3,
        precision="bf16-mixed" if "bf16" in FORMS else 32, val_check_interval=0.34 if "often" in FORMS else 1.0,
        logger=loggers.CSVLogger(folder, name="csv"), enable_progress_bar="metrics" in FORMS, enable_model_summary=False,
        callbacks=[watch, saves, *more])
    model = Model(journal)
    data = DataOf(model) if "module" in FORMS else None
    trainer.fit(model, datamodule=data, ckpt_path=os.path.join(folder, "given.ckpt") if "resume" in FORMS else None)
    if "again" in FORMS:
        journal.write("fitted", step=trainer.global_step)
        trainer.validate(model, verbose=False)
        trainer.fit_loop.max_epochs += 1
        trainer.fit(model)
    value, facts = digest(trainer, model, watch)
    journal.write("end", digest=value, facts=repr(facts), step=trainer.global_step,
                  recoveries=[one.seconds for one in getattr(trainer.strategy, "recoveries", [])])
    dist.barrier()


if __name__ == "__main__":
    main()
