"""--in_process_restart: an unchanged script of Hugging Face's Trainer, or of Lightning's, trains through failures (docs/ELASTIC.md).

The script's group is torch's own until it calls Trainer.train(), and until all ranks know that this training can be kept. Only
then they take a group of ddprun's in its place:

    rank 0                                      rank 1                        a new rank 1
    init_process_group(): torch's               the same                      ddprun's, which stands in: peers were kept
    TrainingArguments, data, model              the same                      the same; its collectives give what theirs gave
    train(): "nothing against it"    <->        the same
    ddprun's group, attach(), train             the same                      attach(), train: from a peer's state

Lightning's fit() makes the group, and the ranks agree before it is made: a new worker gets what each collective of the set-up
has given, so all of them go over a group of ddprun's.

What can't be kept is named in a line, and nothing here acts any more: a failure restarts all processes.

launcher/marks has begin() called in place of torch.distributed.init_process_group().
"""

import functools
import pickle
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddprun import elastic
from ddprun.elastic import groups as _groups
from ddprun.elastic import set_up
from ddprun.elastic.groups import groups
from ddprun.elastic.membership import Membership, say

_OPTION = "--in_process_restart"
_RESTARTED = "a failure restarts all processes"
_OWN_LOOP = ("no train() of transformers' Trainer, and no fit() of Lightning's; a loop of the script's own takes an elastic.Session "
             "(docs/ELASTIC.md)")
_PREPARED = ("found Accelerator.prepare(), but a new worker can't be given what a loop of the script's own counts; an elastic.Session keeps "
             "it (docs/ELASTIC.md)")
_LATE = "found fit() of Lightning's Trainer after another of its calls, which has made the group"
_STRATEGIES = ("lightning.pytorch.strategies.strategy.Strategy", "pytorch_lightning.strategies.strategy.Strategy")
_ACCELERATORS = ("accelerate.accelerator.Accelerator",)
_NAMES = ("backend", "init_method", "timeout", "world_size", "rank", "store", "group_name", "pg_options", "device_id")
_DEFAULTS = {"init_method": (None, "env://"), "store": (None,), "group_name": ("", None), "pg_options": (None,), "device_id": (None,)}

_way = None


def begin(await_modules, original, *arguments, **named):
    """torch's init_process_group(), of a script that ddprun has started with the option.

    await_modules({name: function}): calls function(module) when a module is imported, at once if it is. original: torch's own.
    """
    global _way
    given = {**dict(zip(_NAMES, arguments)), **named}
    membership = Membership.of_environment()
    if _way is not None or membership is None or membership.size == 1 or given.get("backend") == _groups.NAME:
        return original(*arguments, **named)
    why = _obstacle(given, membership)
    if why:
        say(f"{_OPTION}: {why}: {_RESTARTED}")
        return original(*arguments, **named)
    timeout = given.get("timeout") or timedelta(minutes=30)
    membership.prepare(timeout)
    membership.arrive()
    _way = _Way(membership, original, timeout)
    if membership.is_newcomer:
        _way.take_group()
    strategy = _caller(_STRATEGIES)
    if strategy is not None and _is_fit(strategy) and _way.take_fit(strategy):
        return None
    if not membership.is_newcomer:
        original(*arguments, **named)
    _way.watch(await_modules)
    return None


def _is_fit(strategy):
    trainer = getattr(strategy.lightning_module, "_trainer", None)
    return trainer is not None and trainer.state.fn == "fit"


def _caller(names):
    """The object of one of these classes that has a method under way; None = there is none."""
    places = [name.rsplit(".", 1) for name in names]
    kinds = tuple(getattr(sys.modules.get(module), kind, ()) for module, kind in places)
    frame = sys._getframe(1)
    while frame is not None:
        one = frame.f_locals.get("self")
        if isinstance(one, kinds):
            return one
        frame = frame.f_back
    return None


def _obstacle(given, membership):
    backend = str(given.get("backend") or "").lower() or None
    others = [name for name, usual in _DEFAULTS.items() if given.get(name) not in usual]
    if given.get("rank", -1) not in (-1, membership.rank) or given.get("world_size", -1) not in (-1, membership.size, None):
        others.append("rank or world_size")
    return elastic._obstacle("gloo" if backend == "cpu:gloo" else backend, others)


class _Way:
    """How far this process is on its way from a script that knows nothing to a training that is kept."""

    def __init__(self, membership, original, timeout):
        self._membership, self._original, self._timeout = membership, original, timeout
        self._is_over = False  # the Trainer was found, or nothing can be kept
        self._hook = None      # of the first update
        self._end_watch = None  # of collectives over torch's group

    def watch(self, await_modules):
        """Has the script's calls come here."""
        if self._is_over:
            return
        _wrap(torch.nn.parallel.DistributedDataParallel, "__init__", self._on_model)
        self._hook = register_optimizer_step_pre_hook(lambda *_: self._refuse(_OWN_LOOP))
        if not self._membership.is_newcomer:
            self._end_watch = set_up.watch_torchs()
        await_modules({"transformers.trainer": lambda module: _wrap(module.Trainer, "train", self._on_train)})

    def take_group(self):
        """Puts a group of ddprun's in the place of torch's."""
        before = dist.group.WORLD  # stays connected until all ranks have connected the new one, and so have left this one
        if before is not None:
            dist.destroy_process_group()
        self._original(_groups.NAME, store=groups.store, rank=self._membership.rank, world_size=self._membership.size, timeout=self._timeout)
        elastic._membership = self._membership

    def take_fit(self, strategy):
        """Has a fit() of Lightning's kept, which makes its group. Returns whether it is."""
        from ddprun.elastic import lightning as implementation
        try:
            why = implementation.obstacle(strategy)
        except Exception as error:  # of a version of Lightning that isn't known: its training is its own
            why = f"a Trainer of this version of Lightning ({error})"
        if self._membership.is_newcomer:
            if why:
                raise SystemExit(f"ddprun.elastic: {why}, which its peers have not")
        elif not self._agree(why):
            return False
        else:
            self.take_group()
            say(f"{_OPTION}: found fit() of Lightning's Trainer: the others go on in their processes when a worker is lost")
        self._end()
        implementation.adopt(strategy, self._membership, self._say_why_not)
        return True

    def _on_model(self, original, model, *arguments, **named):
        if not self._is_over:  # its model would stay with torch's group
            self._refuse(_LATE if _caller(_STRATEGIES) else _PREPARED if _caller(_ACCELERATORS) else _OWN_LOOP)
        return original(model, *arguments, **named)

    def _on_train(self, original, trainer, *arguments, **named):
        attached = None
        if not self._is_over:
            attached = self._attach(trainer, is_search=bool(named.get("trial") or len(arguments) > 1))
        if attached is None:
            return original(trainer, *arguments, **named)
        try:
            # A child's train() is under way already, so only the Trainer's own comes next.
            return attached.train(functools.partial(original, trainer), *arguments, **named)
        finally:
            attached.detach()  # another train() is transformers' alone

    def _attach(self, trainer, is_search):
        """What is attached to a Trainer; None = it can't be kept."""
        from ddprun.elastic import trainer as implementation
        missing = implementation.missing_parts(trainer)
        why = f"this version of transformers lacks {', '.join(missing)}" if missing else implementation._obstacle(trainer)
        if len(dist.distributed_c10d._world.pg_map) > 1:
            why = "groups of some ranks"
        elif is_search:
            why = "a search of hyperparameters"
        if self._membership.is_newcomer:
            if why:
                raise SystemExit(f"ddprun.elastic: {why}, which its peers have not")
        elif not self._agree(why):
            return None
        else:
            self.take_group()
            say(f"{_OPTION}: found {type(trainer).__name__}.train() of transformers: the others go on in their processes when a "
                "worker is lost")
        self._end()
        return implementation.attach(trainer, self._membership, self._say_why_not)

    def _agree(self, why):
        """Whether no rank has a reason against it."""
        names = [f"ddprun/automatic/{rank}" for rank in range(self._membership.size)]
        told = groups.store.gather(names[self._membership.rank], pickle.dumps(why), names)
        why = next((one for one in map(pickle.loads, told) if one), "")
        if why:
            self._end()
            self._say_why_not(why)
        return not why

    def _refuse(self, why):
        if not self._is_over:
            self._end()
            say(f"{_OPTION}: {why}: {_RESTARTED}")

    @staticmethod
    def _say_why_not(what):
        say(f"{_OPTION}: can't keep {what}: {_RESTARTED}")

    def _end(self):
        self._is_over = True
        if self._hook is not None:
            self._hook.remove()
        if self._end_watch is not None:
            self._end_watch()


def _wrap(owner, name, wrapper):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments, **named):
        return wrapper(original, *arguments, **named)
    setattr(owner, name, wrapped)
