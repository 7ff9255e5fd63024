"""Lightning's DDP, with training that goes on in its processes when a peer is lost (docs/ELASTIC.md):

    trainer = Trainer(accelerator="cpu", devices=4, strategy=elastic.DDPStrategy())

Under another launcher, and alone, it is Lightning's own DDPStrategy.
"""

import csv
import functools
import itertools
import os
import pickle
import sys

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

from ddprun import elastic
from ddprun.data import ElasticSampler
from ddprun.elastic.groups import groups
from ddprun.elastic.journal import Journal
from ddprun.elastic.lightning_state import PACKAGES, missing_parts, module, package_of
from ddprun.elastic.lightning_training import GIFT_BYTES, Training
from ddprun.elastic.membership import Membership, say

# Callbacks of Lightning's that change the model or the optimizer, or run batches, beside the loops.
_REFUSED_CALLBACKS = ("StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging", "BatchSizeFinder", "LearningRateFinder",
                      "ModelPruning", "BaseFinetuning")
_SET_UP = "while it sets itself up"


def DDPStrategy(*, package=None, **named):
    """A strategy for Lightning's Trainer. named: arguments of Lightning's DDPStrategy. package: "lightning.pytorch" or
    "pytorch_lightning"; by default the one that the program has imported."""
    imported = [one for one in PACKAGES if one in sys.modules]
    if package is None and len(imported) != 1:
        raise ImportError(f"elastic.DDPStrategy: the program has imported {' and '.join(imported) or 'no Lightning'}: "
                          "give the package of the Trainer, as package=\"lightning.pytorch\"")
    return _class(package or imported[0])(**named)


@functools.lru_cache(None)
def _class(package):
    return type("DDPStrategy", (_Elastic, module(package, "strategies").DDPStrategy), {"_package": package, "__module__": __name__})


class Refusal(TypeError):
    """what: isn't kept."""

    def __init__(self, what, text):
        super().__init__(f"elastic.DDPStrategy {text}")
        self.what = what


def obstacle(strategy):
    """What of a strategy of Lightning's, and of its Trainer, isn't kept, as far as it can be known while the group is made."""
    package = package_of(strategy)
    trainer = strategy.lightning_module.trainer
    if type(strategy) is not module(package, "strategies").DDPStrategy:
        return f"the {type(strategy).__name__} of Lightning's Trainer"
    missing = missing_parts(package)
    if missing:
        return f"a Trainer of this version of Lightning, which lacks {', '.join(missing)}"
    what = _unkept_of(strategy, trainer)
    loader = trainer.fit_loop._data_source.instance
    if not what and not isinstance(loader, (torch.nn.Module, type(None))) and not hasattr(loader, "train_dataloader"):
        what = _unkept_loader(loader)
        return what and f"the {what} that Lightning's Trainer reads"
    return what


def adopt(strategy, membership, on_refusal):
    """Puts a strategy of this module in the place of Lightning's DDPStrategy, which makes its group just now: ddprun has made it.
    Both have the same attributes from now on.

    on_refusal(what): is called for what is found out later; then the training is Lightning's alone.
    """
    kind, trainer = _class(package_of(strategy)), strategy.lightning_module.trainer
    ours = kind.__new__(kind)
    vars(ours).update(_membership=membership, _on_refusal=on_refusal)
    vars(strategy).update(vars(ours))
    ours.__dict__ = vars(strategy)
    trainer._accelerator_connector.strategy = ours
    ours._begin_journal()
    ours._join_loggers(trainer)


def _unkept_of(strategy, trainer):
    """What of a Trainer with this strategy isn't kept; "" = nothing."""
    callbacks = module(package_of(strategy), "callbacks")
    refused = tuple(getattr(callbacks, name) for name in _REFUSED_CALLBACKS if hasattr(callbacks, name))
    reasons = [
        (not strategy.lightning_module.automatic_optimization, "manual optimization"),
        (strategy._layer_sync is not None, "sync_batchnorm=True"),
        (getattr(strategy.precision_plugin, "scaler", None) is not None, "a gradient scaler"),
        (strategy._model_averaging_period is not None or strategy._ddp_comm_hook is not None,
         "communication hooks and averaged models"),
        (strategy._ddp_kwargs.get("static_graph", False), "static_graph=True"),
        (trainer.reload_dataloaders_every_n_epochs, "reload_dataloaders_every_n_epochs"),
        (getattr(trainer, "_val_check_time_interval", None) is not None, "a val_check_interval of time"),
        (getattr(strategy.lightning_module, "_compiler_ctx", None) is not None, "a module compiled as a whole (compile its parts)"),
        *((isinstance(one, refused), f"the callback {type(one).__name__}") for one in trainer.callbacks)]
    return next((what for holds, what in reasons if holds), "")


def _unkept_loader(loader):
    """What of a loader isn't kept, whatever its sampler is; "" = nothing."""
    if type(loader) is DataLoader and not isinstance(loader.dataset, IterableDataset):
        return ""
    return type(loader if type(loader) is not DataLoader else loader.dataset).__name__


class _Depth:
    """A hook that counts the model's forward passes under way. In copies of the model it counts nothing."""

    def __init__(self, journal, change):
        self._journal, self._change = journal, change

    def __call__(self, *_):
        if self._journal is not None:
            self._journal.depth += self._change

    def __reduce__(self):
        return _Depth, (None, 0)


class Batches:
    """A batch sampler that can begin within an epoch, on a newcomer. It has the epochs of its source."""

    def __init__(self, source, count=None):
        """source: an ElasticSampler, or torch's batch sampler of a sampler whose order depends on the epoch alone. count: of an
        epoch's batches; None = all."""
        self._source, self._epoch, self._start = source, 0, {}
        self._rewind()
        self._count = len(source) if count is None else count
        self.sampler = self  # Lightning gives it the epoch

    def __getattr__(self, name):
        return getattr(self.__dict__["_source"], name)

    def set_epoch(self, epoch):
        self._epoch = epoch
        if isinstance(getattr(self._source, "sampler", None), DistributedSampler):
            self._source.sampler.set_epoch(epoch)

    def start_at(self, batch):
        """Iterations of this epoch begin at that batch."""
        self._start = {self._epoch: batch}

    def __len__(self):
        return self._count

    def __iter__(self):
        self._rewind()
        return itertools.islice(iter(self._source), self._start.get(self._epoch, 0), self._count)

    def _rewind(self):
        """Nothing is committed: Lightning's counters know the place in the epoch."""
        if isinstance(self._source, ElasticSampler):
            self._source.load_state_dict({**self._source.state_dict(), "epoch": self._epoch, "consumed": 0})


def _continue_csv(logger):
    """Opens the logger's file without a loss of what is in it: Lightning's logger would begin it anew."""
    path = os.path.join(logger.log_dir, "metrics.csv")
    if not os.path.exists(path):
        return
    os.rename(path, f"{path}.before")
    experiment = logger.experiment
    os.rename(f"{path}.before", path)
    with open(path, newline="", encoding="utf-8") as file:
        experiment.metrics_keys = next(csv.reader(file), [])


class _Elastic:
    """What is different from Lightning's strategy, which is the next base class."""

    _package = _why_not = ""
    _journal = _membership = _training = _batches = None
    _hooks = ()
    _given = None  # how the script's loader is put back
    _on_refusal = None  # of a script that hasn't asked for this strategy

    # ---- the group

    def setup_distributed(self):
        membership = Membership.of_environment()
        if membership is not None and membership.size > 1 and not dist.is_initialized():
            missing = missing_parts(self._package)
            if missing:
                say(f"this version of Lightning lacks {', '.join(missing)}: a failure restarts all processes")
            else:
                self.set_world_ranks()
                elastic.init_process_group(self._get_process_group_backend(), timeout=self._timeout)
                groups.refuse_nccl("Lightning's fit()", TypeError)
        self._membership = elastic._membership if dist.is_initialized() and membership is not None else None
        super().setup_distributed()
        if self._membership is not None and self._journal is None and self._on_refusal is None:
            self._begin_journal()
            self._join_loggers(self.lightning_module.trainer)

    def _begin_journal(self):
        self._journal = groups.journal = Journal(lambda error: self._training.is_peers(error), None, self._is_aside)
        if not self._membership.is_newcomer:
            return
        self._journal.alone = _SET_UP
        if self._membership.gift:
            self._journal.take(pickle.loads(self._membership.gift))
        trainer = self.lightning_module.trainer
        # A peer gives it the state; a file may be of a later step, or be written just now.
        trainer._checkpoint_connector.resume_start = lambda *_, **__: None
        trainer.num_sanity_val_steps = 0

    def _join_loggers(self, trainer):
        """Gives all ranks the folder of rank 0's logs, and a new rank 0 that of the lost one."""
        kinds = module(self._package, "loggers")
        files = [one for one in trainer.loggers if isinstance(one, (kinds.CSVLogger, kinds.TensorBoardLogger))]
        for one, version in zip(files, self.broadcast([one.version if trainer.is_global_zero else None for one in files])):
            one._version = version
            if isinstance(one, kinds.CSVLogger) and trainer.is_global_zero and self._membership.is_newcomer:
                _continue_csv(one)

    def _is_aside(self):
        """The sanity check's results are thrown away, and a newcomer has no such check; so the loader of the validation may be made
        in it, or later."""
        trainer = getattr(self.lightning_module, "_trainer", None)
        if trainer is None or not self._is_fitting():
            return False
        return trainer.sanity_checking or self._training is None and trainer.validating

    def _is_fitting(self):
        return self._journal is not None and self.lightning_module.trainer.state.fn.value == "fit"

    # ---- the set-up

    def setup(self, trainer):
        if self._is_fitting():
            self._check(trainer)
        super().setup(trainer)
        if self._is_fitting():
            self._check_optimizers()

    def _setup_model(self, model):
        if self._journal is None:
            return super()._setup_model(model)
        with self._journal.paused():  # the state comes from a peer
            made = super()._setup_model(model)
        self._hooks = [model.register_forward_pre_hook(_Depth(self._journal, 1)),
                       model.register_forward_hook(_Depth(self._journal, -1), always_call=True)]
        return made

    def _check(self, trainer):
        """Refuses what isn't kept through failures, before anything is trained."""
        what = "a second fit() in a process" if self._training is not None else _unkept_of(self, trainer)
        if what:
            self._refuse(Refusal(what, f"can't train through failures with {what}: use Lightning's strategy \"ddp\", with which a failure "
                                 "restarts all processes"))

    def _check_optimizers(self):
        if len(self.optimizers) != 1 or isinstance(self.optimizers[0], torch.optim.LBFGS):
            kinds = ", ".join(type(one).__name__ for one in self.optimizers) or "none"
            self._refuse(Refusal(f"the optimizers of Lightning's Trainer: {kinds}",
                                 "trains with one optimizer, and not with LBFGS, which changes parameters many times within one step; "
                                 f"this model has {kinds}"))

    def _refuse(self, refusal):
        if self._on_refusal is None:
            raise refusal
        if self._membership.is_newcomer:
            raise SystemExit(f"ddprun.elastic: {refusal.what}, which its peers have not")
        self._why_not = self._why_not or refusal.what

    def _goes_on(self):
        """Whether the training is kept, of a script that hasn't asked for it. Where one rank can't, no rank does."""
        if self._membership.is_newcomer:
            return True
        self._check_states()
        if self._on_refusal is None:
            return True
        if self._batches is None:
            self._why_not = self._why_not or "a Trainer without a DataLoader"
        if len(pickle.dumps(self._journal.entries)) > GIFT_BYTES:
            self._why_not = self._why_not or "what collectives of the set-up have given, more than a new worker can be given"
        names = [f"ddprun/lightning{rank}" for rank in range(self._membership.size)]
        told = groups.store.gather(names[self._membership.rank], self._why_not.encode(), names)
        why = next((one.decode() for one in told if one), "")
        if why:
            self._let_go(why)
        return not why

    def _check_states(self):
        """Callbacks are asked for their states at each batch, and by Lightning only when it saves."""
        for callback in self.lightning_module.trainer.callbacks:
            try:
                callback.state_dict()
            except Exception as error:
                name = type(callback).__name__
                self._refuse(Refusal(f"the state of {name}", f"asks callbacks for their states before the first batch, and "
                                     f"{name}.state_dict() has failed: {error!r}"))

    def _let_go(self, why):
        """The training is Lightning's alone."""
        self._release()
        self._on_refusal(why)

    def _release(self):
        """What follows is Lightning's alone."""
        groups.journal = self._journal = None
        for hook in self._hooks:
            hook.remove()
        if self._given is not None:
            object.__setattr__(*self._given)
        if self._training is not None:
            self._training.leave()
            self._membership.why_not = lambda: "a worker was lost after fit()"  # which may have ended by an error
        self._hooks, self._given, self._training = [], None, None

    def teardown(self):
        super().teardown()
        if self._on_refusal is not None and self._journal is not None:
            self._release()

    # ---- the data

    def process_dataloader(self, dataloader):
        dataloader = super().process_dataloader(dataloader)
        trainer = self.lightning_module.trainer
        if not self._is_fitting() or not trainer.training:
            return dataloader
        try:
            if self._batches is not None:
                raise Refusal("several DataLoaders of Lightning's Trainer", "trains with one DataLoader")
            self._batches = self._batches_of(dataloader)
        except Refusal as refusal:
            self._refuse(refusal)
            return dataloader
        if self._on_refusal is not None:  # the loader stays, for those who read what it has
            self._given = (dataloader, "batch_sampler", dataloader.batch_sampler)
            object.__setattr__(dataloader, "batch_sampler", self._batches)  # torch's own __setattr__ allows no other sampler
            return dataloader
        options = {name: getattr(dataloader, name) for name in (
            "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
            "prefetch_factor", "persistent_workers")}
        return DataLoader(dataloader.dataset, batch_sampler=self._batches, **options)

    def _batches_of(self, loader):
        """The Batches of a loader; Refusal: a newcomer couldn't find its place in them."""
        what = _unkept_loader(loader)
        if what:
            raise Refusal(f"the {what} that Lightning's Trainer reads", "trains with torch's DataLoader of a data set with a length, not with "
                          f"{what}: a new worker couldn't find its place in it")
        batches, sampler = loader.batch_sampler, loader.sampler
        is_lightnings = self.lightning_module.trainer._accelerator_connector.use_distributed_sampler
        if type(batches) is BatchSampler and type(sampler) is DistributedSampler and is_lightnings and self._on_refusal is None:
            return self._dealer(loader, sampler)
        if isinstance(batches, ElasticSampler) or (
                type(batches) is BatchSampler and type(sampler) in (DistributedSampler, SequentialSampler)):
            return Batches(batches)
        what = type(sampler if batches is None or type(batches) is BatchSampler else batches).__name__
        raise Refusal(f"the order of {what}", f"can't repeat the order of {what}: leave the sampler to Lightning, or use torch's "
                      "DistributedSampler or ddprun.data.ElasticSampler")

    def _dealer(self, loader, sampler):
        """An ElasticSampler in place of Lightning's DistributedSampler, which deals some samples twice."""
        size, world = len(loader.dataset), self.world_size
        per_step, drops = loader.batch_sampler.batch_size * world, loader.batch_sampler.drop_last
        rest = size % per_step
        if 0 < rest < world and not drops:
            raise Refusal("a last step", f"can't deal {size} samples in steps of {world} times {loader.batch_sampler.batch_size}, which leave "
                          f"{rest} for the last step, fewer than there are ranks: choose another batch_size, or drop_last=True")
        dealer = ElasticSampler(size, global_batch=per_step, seed=sampler.seed, shuffle=sampler.shuffle, rank=self.global_rank,
                                world_size=world)
        return Batches(dealer, size // per_step if drops else None)

    def reduce(self, tensor, group=None, reduce_op="mean"):
        """A mean as Lightning computes it with Gloo, which has no such operation and which Lightning knows by its name."""
        if self._journal is None or not isinstance(tensor, torch.Tensor) or reduce_op not in ("mean", "avg"):
            return super().reduce(tensor, group, reduce_op)
        total = super().reduce(tensor, group, "sum")
        mean = total / dist.get_world_size(group)
        return total.copy_(mean)

    def broadcast(self, obj, src=0):
        """As Lightning's; but a new worker in the place of `src`, too, gets what was sent from there."""
        if self._journal is None:
            return super().broadcast(obj, src)
        text = pickle.dumps(obj) if self.global_rank == src else b""
        size = torch.tensor([len(text)])
        dist.broadcast(size, src)
        data = torch.zeros(int(size), dtype=torch.uint8)
        if len(text) == len(data):
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.broadcast(data, src)
        there = data.numpy().tobytes()
        return obj if there == text else pickle.loads(there)

    # ---- the training

    def on_train_start(self):
        super().on_train_start()
        if self._journal is not None and self._goes_on():
            self._training = Training(self, self.lightning_module.trainer, self._membership, self._journal, self._batches,
                                      self._on_refusal)
            self._training.begin()

    def on_train_batch_start(self, batch, batch_idx):
        super().on_train_batch_start(batch, batch_idx)
        if self._training is not None:
            self._training.seed_training()

    def on_train_end(self):
        super().on_train_end()
        if self._training is not None:
            self._training.end()

    def training_step(self, *arguments, **named):
        if self._training is None:
            return super().training_step(*arguments, **named)
        with self._journal.paused():  # for DDP's own collectives; the module's hooks end the pause
            return super().training_step(*arguments, **named)

    def backward(self, closure_loss, *arguments, **named):
        if self._training is None:
            return super().backward(closure_loss, *arguments, **named)
        self._training.guarded(super().backward, closure_loss, *arguments, **named)
        return closure_loss

    def optimizer_step(self, optimizer, closure, model=None, **named):
        attempt = functools.partial(super().optimizer_step, optimizer, model=model, **named)
        return attempt(closure) if self._training is None else self._training.update(attempt, closure)

    @property
    def recoveries(self):
        """The recoveries so far, as those of a Session."""
        return [] if self._training is None else self._training.recoveries
