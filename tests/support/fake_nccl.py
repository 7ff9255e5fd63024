"""NCCL's groups on machines without a GPU, for tests: collectives over Gloo that end without an error, with nonsense, when their
group is aborted, as NCCL's do.

ELASTIC_DIES_IN="GENERATION:RANK:NUMBER,...": that rank ends itself in place of that sum (all-reduce or reduce-scatter) of the
generation, so the others are in it. ELASTIC_NEVER_SETTLES: nobody asks whether a group was aborted.
"""

import os
import signal

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ddprun.elastic import groups, nccl

ENDS = os.environ.get("ELASTIC_DIES_IN", "").split(",")
DEVICE = torch.device("cpu")
SUMS = ("allreduce", "_reduce_scatter_base")


class Work:
    def __init__(self, work, tensors):
        self.work, self.tensors = work, [tensors] if isinstance(tensors, torch.Tensor) else tensors

    def wait(self):
        try:
            self.work.wait()
        except RuntimeError:
            self.spoil()

    def spoil(self):
        groups.groups.over.wait(lambda over: over.why)  # a kernel of NCCL's waits for a lost peer until the abort
        for tensor in self.tensors:
            tensor.fill_(float("nan") if tensor.is_floating_point() else 77)

    def get_future(self):
        def ended(future):
            try:
                return future.value() or self.tensors
            except RuntimeError:
                self.spoil()
                return self.tensors
        return self.work.get_future().then(ended)

    def is_completed(self):
        return self.work.is_completed()


class Over:
    """A collective that has never begun."""

    def wait(self):
        pass

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([])
        return future

    def is_completed(self):
        return True


class Group:
    def __init__(self, store, rank, size, timeout):
        self.sums = 0
        device, address = groups._device()
        store.set(f"listener{rank}", address)
        self.backend = groups._Backend([store.get(f"listener{one}").decode() for one in range(size)], timeout)
        options = c10d.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [device], groups._THREADS, groups.CONNECT_TIMEOUT
        before = groups._threads()
        self.backend.inner = c10d.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, options)
        self.backend.inner._set_default_timeout(groups._YEAR)
        self.backend.threads = groups._threads() - before
        self.backend.know_sockets()

    def __getattr__(self, name):
        return lambda *arguments, **named: self.begin(name, arguments, named)

    def begin(self, name, arguments, named):
        self.sums += name in SUMS
        if name in SUMS and f"{os.environ['DDPRUN_GENERATION']}:{self.backend.inner.rank()}:{self.sums}" in ENDS:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return Work(self.backend.run(name, arguments, named), arguments[0])
        except groups.PeerError:  # it is aborted, and nobody has asked
            work = Work(Over(), arguments[0])
            work.spoil()
            return work

    def abort(self):
        self.backend.shut_down("the group is aborted")
        self.backend.await_ends()


def connected(store, rank, size, timeout, _):
    return Group(store, rank, size, timeout)


def install():
    """Has the process take the CPU for a GPU."""
    os.environ["DDPRUN_ELASTIC_NCCL"] = "1"
    nccl.connected, nccl.synchronize, nccl.missing_parts = connected, lambda _: None, lambda: []
    nccl.device_of = lambda values: DEVICE if any(_tensors(values)) else None
    if os.environ.get("ELASTIC_NEVER_SETTLES"):
        check = groups._Backend._check
        groups._Backend._check = lambda backend: check(backend) if backend.gpu is None else None
        nccl.Gpu.settle, nccl.Gpu.is_settled = lambda _: None, property(lambda _: True, lambda *_: None)


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield True
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
