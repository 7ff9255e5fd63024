"""Saves the state of one worker into its slots, in a thread beside the training."""

import atexit
import os
import sys
import threading
import time

import torch

from ddprun import grpc_channel
from ddprun.elastic.slots import Slots, size_of
from ddprun.elastic.snapshot import Snapshot, Staging, load, peek, size_ahead, storages_of

# DDP orders its buckets in the second step, and says so in the third. An earlier state lacks the order in which sums are added.
BUCKETS_KNOWN = 3


class Checkpoints:
    """The checkpoints of one worker in the agent's memory. Threads: the one that trains; it starts another one."""

    def __init__(self, agent, slots, optimizers, rank, world):
        """slots: how many. RpcError, OSError: the agent's memory can't be had."""
        self.slots = Slots(agent, slots)
        self.replicas = None       # of these checkpoints on another node: a replicas.Replicas
        self.shared = set          # the storages that are the same on all ranks; a function
        self._optimizers, self._rank, self._world = optimizers, rank, world
        self._lock = threading.Condition()
        self._job = self._thread = self._snapshot = None
        self._room = 0             # bytes that all slots have
        self._may_change = False   # something other than optimizer.step() changes parameters
        self._staging = Staging()
        self.why_off = ""          # nothing is saved any more
        self.seconds_seen = 0.0    # that training has waited for saves
        self.seconds_beside = 0.0  # that the last save has taken beside it
        for optimizer in optimizers:
            innermost(optimizer).register_step_pre_hook(self._before_update)

    def whole(self):
        """The heads of the whole checkpoints."""
        return [head for _, head in self.slots.whole()]

    def touch_ahead(self, tree):
        """Begins to take memory for states like that one, so that no save waits for its pages. tree: as of save()."""
        size = size_ahead(tree, self._optimizers)
        self._begin(lambda: self._make_room(size))

    def save(self, step, tree):
        """Begins to save a state. tree: dicts, lists and plain values, with tensors."""
        begin = time.perf_counter()
        self.wait()
        if not self.why_off:
            # A save into new pages takes ten times as long, too long for an update to wait for it.
            constant = storages_of(self._optimizers) if self._room and not self._may_change else set()
            try:
                self._snapshot = snapshot = Snapshot(tree, constant, self._staging, self.shared())
                self._begin(lambda: self._write(step, snapshot))
            except Exception as error:  # as of a state that can't be pickled
                self._turn_off(f"{type(error).__name__}: {error}")
        self.seconds_seen += time.perf_counter() - begin

    def wait(self):
        """Waits for the save under way."""
        with self._lock:
            self._lock.wait_for(lambda: self._job is None)

    def wait_for_copy(self):
        """Waits until the newest checkpoint's copy has arrived, or there is none to come."""
        if self.replicas is None:
            return
        begin = time.perf_counter()
        self.wait()
        self.replicas.wait()
        self.seconds_seen += time.perf_counter() - begin

    def load(self, step, modules, found=None):
        """The tree of that step's checkpoint, as snapshot.load() returns it. found: (slot, head) of it, if it may be elsewhere."""
        slot, head = found or self.find(step)
        return load(slot.text(head), lambda pieces: slot.read(head, pieces), modules)

    def peek(self, step):
        """The tree of that step's checkpoint without its tensors."""
        slot, head = self.find(step)
        return peek(slot.text(head))

    def find(self, step, rank=None):
        """(slot, head) of that step's checkpoint. rank: the one that has written it; None = any."""
        return next((slot, head) for slot, head in self.slots.whole() if head.step == step and rank in (None, head.rank))

    def _begin(self, job):
        with self._lock:
            self._job = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ddprun memory", daemon=True)
                self._thread.start()
                atexit.register(self._end, os.getpid())
            self._lock.notify_all()

    def _end(self, pid):
        if pid == os.getpid():
            self.wait()  # the thread holds tensors, which must not outlive the interpreter

    def _before_update(self, *_):
        snapshot = self._snapshot
        if snapshot is None:
            return
        begin = time.perf_counter()
        snapshot.before_update()
        if snapshot.waits:
            self.wait()
        self.seconds_seen += time.perf_counter() - begin

    def _run(self):
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._job is not None)
                job = self._job
            try:
                job()
            except grpc_channel.RpcError as error:
                self._turn_off(error.text)
            except Exception as error:  # whatever it is, training goes on without it
                self._turn_off(f"{type(error).__name__}: {error}")
            with self._lock:
                self._job = self._snapshot = job = None
                self._lock.notify_all()

    def _write(self, step, snapshot):
        begin = time.perf_counter()
        pieces = snapshot.pieces()
        if not self.slots.write(step, self._rank, self._world, snapshot.text, pieces, snapshot.is_right):
            self._may_change = True
            say("parameters changed between two updates: from now on checkpoints in memory are copied while training waits")
        elif self.replicas is not None:
            self.replicas.send(*self.find(step, self._rank))
        self.seconds_beside = time.perf_counter() - begin
        if not self._room:
            self._make_room(size_of(snapshot.text, [size for _, size in pieces]))

    def _make_room(self, size):
        self._room = self.slots.touch_ahead(size)

    def _turn_off(self, why):
        self.why_off = why
        say(f"no checkpoints in memory: {why}")


def innermost(optimizer):
    """The optimizer that a wrapper, as accelerate's, has inside."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def say(text):
    """Prints a line for people, about this rank."""
    print(f"ddprun.elastic: rank {os.environ.get('RANK', '0')}: {text}", file=sys.stderr, flush=True)
