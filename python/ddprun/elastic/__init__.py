"""Training that goes on in its processes when a peer is lost (docs/ELASTIC.md). Needs torch.

    from ddprun import elastic

    elastic.init_process_group()                            # in place of dist.init_process_group()
    sampler = elastic.ElasticSampler(data, global_batch=256)
    loader = DataLoader(data, batch_sampler=sampler)
    session = elastic.Session(model, optimizer, scheduler, sampler=sampler)
    while sampler.epoch < epochs:
        for batch in session.batches(loader):               # the loop's body doesn't change
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from ddprun.data import ElasticSampler
from ddprun.elastic import groups as _groups
from ddprun.elastic import nccl as _nccl
from ddprun.elastic import reducer as _reducer
from ddprun.elastic import shards as _shards
from ddprun.elastic.membership import Membership as _Membership
from ddprun.elastic.membership import say as _say
from ddprun.elastic.memory import MemoryCheckpoint
from ddprun.elastic.session import Session as _Session
from ddprun.elastic.store import PeerError

__all__ = ["ElasticSampler", "MemoryCheckpoint", "PeerError", "Session", "attach", "init_process_group"]

_TORCH = (2, 4)
_FOR_GPU = ("nccl", "cuda:nccl", "cpu:gloo,cuda:nccl")
_membership = None
_said_why_not = False


def init_process_group(backend=None, timeout=None, **named):
    """torch.distributed.init_process_group(), with a group that outlives the loss of a peer.

    backend: "gloo", or None, which is that where there is no GPU. With others, under another launcher, and with a version of torch
    that lacks something, the group is torch's own, and a failure restarts all processes. Without a launcher there is no group.
    timeout: None = 30 minutes, as torch's for Gloo, or torch's own for its groups.
    named: torch's own arguments.
    """
    global _membership, _said_why_not
    membership = _Membership.of_environment()
    why = _obstacle(backend, named, takes_nccl=_nccl.wanted())
    if membership is None or why:
        if membership is not None:
            _said_why_not = True
            _say(f"{why}: a failure restarts all processes")
        if not named and "RANK" not in os.environ:
            return None  # the script runs alone
        return dist.init_process_group(backend, timeout=timeout, **named)
    _groups.groups.has_nccl = _is_for_gpu(backend)
    timeout = timeout or timedelta(minutes=30)
    membership.prepare(timeout)
    membership.arrive()
    dist.init_process_group(_groups.NAME, store=_groups.groups.store, rank=membership.rank, world_size=membership.size,
                            timeout=timeout)
    _membership = membership


def __getattr__(name):
    if name == "DDPStrategy":  # Lightning is imported for those that ask for it
        from ddprun.elastic.lightning import DDPStrategy
        return DDPStrategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_for_gpu(backend):
    return backend in _FOR_GPU or backend is None and torch.cuda.is_available()


def _obstacle(backend, named, takes_nccl=False):
    """Why the group can't outlive a failure; "" = it can. takes_nccl: the caller has NCCL's groups renewed, too."""
    if tuple(int(one) for one in torch.__version__.split(".")[:2]) < _TORCH:
        return f"torch {torch.__version__} is older than {'.'.join(map(str, _TORCH))}"
    missing = [*_groups.missing_parts(), *_reducer.missing_parts()]
    if missing:
        return f"torch {torch.__version__} lacks {', '.join(missing)}"
    if _is_for_gpu(backend) and takes_nccl:
        missing = _nccl.missing_parts()
        if missing:
            return f"torch {torch.__version__} lacks {', '.join(missing)}"
        named = {name: value for name, value in named.items() if name != "device_id"}  # a group connects where its first tensor is
    elif backend not in (None, "gloo") or _is_for_gpu(backend):
        return f"groups of {backend or 'nccl'} can't be renewed yet, only Gloo's"
    if named:
        return f"a group with {', '.join(named)} isn't ddprun's"
    return ""


class Session(_Session):
    __doc__ = _Session.__doc__

    def __new__(cls, model, *_, **__):
        return super().__new__(_ShardedSession if cls is Session and _shards.is_sharded(model) else cls)

    def __init__(self, model, optimizer, scheduler=None, scaler=None, *, sampler, extra=None, memory_every=None):
        if MemoryCheckpoint._exists:  # has the memory
            if isinstance(self, _ShardedSession):
                raise RuntimeError("an elastic.Session of fully_shard()'s models keeps checkpoints in memory by itself: make no "
                                   "MemoryCheckpoint beside it")
            memory_every = 0
        if _membership is None and not _said_why_not and _Membership.of_environment() is not None:
            _say("a Session finds no group of elastic.init_process_group(), which takes the place of torch's: a failure restarts all processes")
        super().__init__(model, optimizer, scheduler, scaler, sampler=sampler, extra=extra, memory_every=memory_every,
                         membership=_membership)


class _ShardedSession(_shards.ShardedSession, Session):
    pass


def attach(trainer):
    """Has a Trainer of transformers', or a child of it, train through failures (docs/ELASTIC.md). Call it before trainer.train().

    init_process_group() comes before the TrainingArguments. Raises ValueError for what can't be kept. Under another launcher, and
    where init_process_group() has said that it can't, it does nothing. Returns an object that lists recoveries; None = nothing was
    attached.
    """
    if _membership is None:
        if not _said_why_not and _Membership.of_environment() is not None:
            _say("attach() finds no group of elastic.init_process_group(), which comes before the TrainingArguments: a failure "
                 "restarts all processes")
        return None
    _groups.groups.refuse_nccl("a Trainer", ValueError)
    from ddprun.elastic import trainer as implementation
    missing = implementation.missing_parts(trainer)
    if missing:
        import transformers
        _say(f"transformers {transformers.__version__} lacks {', '.join(missing)}: a failure restarts all processes")
        return None
    return implementation.attach(trainer, _membership) if _membership.size > 1 else None
