"""Checkpoints in memory that outlive the worker, for scripts whose processes are restarted (docs/ELASTIC.md, "Memory").

    memory = elastic.MemoryCheckpoint(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler)
    for step in range(memory.restore(), steps):
        train(step)
        memory.save(step + 1)

The ranks restore the newest step that all of them have. Two slots suffice where the ranks meet in each step: before a rank saves
step 20, all have begun step 20, so all have the checkpoint of step 10. With every=1 they may be a checkpoint apart, and have three:

    rank 0: step 7 whole, step 8 half written          rank 1: step 6 whole, step 7 half written
    both also have the checkpoint before their whole one, so both have step 6

Copies of them are on other nodes (replicas.py).
"""

import json
import os
import random
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from ddprun import grpc_channel
from ddprun.agent import Agent
from ddprun.elastic import reducer, replicas, resharding
from ddprun.elastic.checkpoints import BUCKETS_KNOWN, Checkpoints, innermost, say
from ddprun.elastic.membership import say as say_of_all
from ddprun.elastic.session import Session
from ddprun.elastic.snapshot import as_own, load_optimizer, storages_of
from ddprun.elastic.transfer import state_of

# How long a rank waits for the others to say which steps they have.
_MEETING_SECONDS = 1800.0
_EVERY = 10


class MemoryCheckpoint:
    """The newest states of a training, in memory that the agent holds: they outlive this process, and end with the job.

    parts: by name, what has state_dict() and load_state_dict() (models, optimizers, schedulers, scalers, samplers), torch.Generators,
    or lists of these. The default generators of Python, numpy, torch and CUDA belong to it in any case. Make it after the parts, and
    after DistributedDataParallel has wrapped the models. Optimizers' step() must be what changes parameters.
    every: save() keeps every so many steps; the same on all ranks.
    copies: whether another node's agent has copies, in a job of several nodes, so that a lost node's states aren't lost.
    Under another launcher, and where the node has no memory for it, it does nothing, and a line says so. One in a process.
    """

    _exists = False

    def __init__(self, *, every=_EVERY, copies=True, **parts):
        if MemoryCheckpoint._exists:
            raise RuntimeError("a process has one elastic.MemoryCheckpoint: give it all parts")
        if Session._exists:
            raise RuntimeError("an elastic.Session keeps its state in memory by itself: make no MemoryCheckpoint beside it")
        if every < 1:
            raise ValueError(f"every is a number of steps, 1 or more, not {every}")
        self.every = every
        self._parts = {name: part if isinstance(part, (list, tuple)) else [part] for name, part in parts.items()}
        for name, several in self._parts.items():
            for part in several:
                if not isinstance(part, torch.Generator) and not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                    raise TypeError(f"{name}= has state_dict() and load_state_dict(), not {type(part).__name__}")
        self._agent, self._checkpoints, self._copies = Agent.of_environment(), None, None
        self._rank, self._world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        generation = os.environ.get("DDPRUN_GENERATION", "")
        self._generation = int(generation) if generation.isdigit() else 0
        self._layouts = [None] * len(self._models())
        self._least = BUCKETS_KNOWN if self._layouts else 1
        if self._agent is None or not self._generation:
            say_of_all("no checkpoints in memory: ddprun hasn't started this process")
            return
        MemoryCheckpoint._exists = True
        self._begin(3 if every == 1 else 2, copies)
        if self._checkpoints is not None and self._generation == 1:
            self._checkpoints.touch_ahead(self._tree())

    def _begin(self, slots, has_copies):
        try:
            self._checkpoints = Checkpoints(self._agent, slots, self._all(torch.optim.Optimizer), self._rank, self._world)
            if has_copies and (self._generation > 1 or replicas.has_other_node()):  # other ranks may ask for checkpoints
                self._copies = replicas.Replicas(self._agent, self._checkpoints.slots, slots)
            if replicas.has_other_node():
                self._checkpoints.replicas = self._copies
                self._checkpoints.shared = self._shared
        except (grpc_channel.RpcError, OSError) as error:
            what = "checkpoints in memory" if self._checkpoints is None else "copies of checkpoints on another node"
            say(f"no {what}: {getattr(error, 'text', error)}")

    @property
    def seconds_seen(self):
        """How long the training has waited for saves."""
        return self._checkpoints.seconds_seen if self._checkpoints is not None else 0.0

    def restore(self):
        """Restores the newest step that all ranks have. Returns how many steps are done, as given to save(); 0 = no step was saved.

        All ranks call it, before the first step. RuntimeError: not all ranks have called it.
        """
        if self._agent is None or self._generation <= 1 and not replicas.has_other_node():
            return 0
        copies = self._copies
        own = {"own": replicas.note_of(self._checkpoints.slots) if self._checkpoints is not None else []}
        notes = self._meet("memory", copies.note() if copies is not None else own)
        step, world, holders = replicas.newest(notes)
        if self._checkpoints is None:
            return 0
        if world not in (None, self._world) and not all("address" in note for note in notes):
            say_of_all(f"{world} workers have saved checkpoints in memory, and there are {self._world} now, without copies=True")
            step = None
        self._checkpoints.wait()
        self._checkpoints.slots.keep_only(step)
        if copies is not None:
            copies.keep_only(step)
        if step is not None:
            step = self._taken(step, world, holders, notes)
        if copies is not None:
            notes[self._rank] = copies.note()
            copies.begin(notes, self._rank)
        if self._generation > 1:
            self._checkpoints.touch_ahead(self._tree())
        return step or 0

    def save(self, step):
        """Keeps the state if `step`, the number of steps that are done, is one that is kept. Call it after each step's update."""
        if self._checkpoints is None or self._checkpoints.why_off:
            return
        if self.every == 1 or (step + 1) % self.every == 0:
            self._checkpoints.wait_for_copy()
        if step % self.every == 0 and step >= self._least:
            self._checkpoints.save(step, self._tree())

    def _tree(self):
        return {"parts": {name: [_state_of(part) for part in several] for name, several in self._parts.items()},
                # A reducer in its first step has the layout that it was given.
                "layouts": [reducer.layout_of(model) or given for model, given in zip(self._models(), self._layouts)],
                "generators": _generators()}

    def _shared(self):
        """The memory of what all ranks have alike: averaged gradients have changed it in the same way."""
        parameters = {parameter for model in self._models() for parameter in model.parameters()}
        found = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        for optimizer in map(innermost, self._all(torch.optim.Optimizer)):
            own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
            if type(optimizer).__module__.startswith("torch.optim") and own <= parameters:  # another one may have a part on each rank
                found |= storages_of([optimizer])
        return found

    def _taken(self, step, world, holders, notes):
        """Takes this rank's state of a step. Returns the step; None = it can't be had."""
        # What others fetch mustn't change before all have got theirs.
        try:
            if world == self._world:
                tree = self._checkpoints.load(step, self._modules(), self._fetched(step, holders, notes))
            else:
                tree = self._of_others(step, world, holders, notes)
                self._meet("taken", {})
        except resharding.OtherLayout as error:
            say_of_all(f"the checkpoints in memory are of {world} workers, and aren't for {self._world}: {error}")
            return None
        self._put(tree, has_generators=self._rank < world)
        if world != self._world:
            say_of_all(f"the state of step {step}, which {world} workers have saved in memory, is divided among {self._world}")
        return step

    def _of_others(self, step, world, holders, notes):
        own = {"parts": {name: [resharding.likes_of(part) for part in several] for name, several in self._parts.items()}}
        former = self._copies.former(notes, step, world, holders)
        try:
            return resharding.tree_of(lambda source: self._checkpoints.load(step, {}, former(source)), world, self._rank, self._world, own)
        except OSError as error:
            raise RuntimeError(f"a former rank's checkpoint in memory: {error}") from None

    def _fetched(self, step, holders, notes):
        """(slot, head) of this rank's checkpoint, which another rank may have."""
        found = None
        if holders[self._rank] != self._rank:
            try:
                if self._copies is None:
                    raise OSError("this rank has no address")
                found = self._copies.fetch(notes[holders[self._rank]], step, self._rank, self._world)
            except OSError as error:
                raise RuntimeError(f"the connection to rank {holders[self._rank]}, which has this rank's checkpoint: {error}") from None
        if holders != list(range(self._world)):
            self._meet("fetched", {})
        return found or self._checkpoints.find(step, self._rank)

    def _meet(self, what, own):
        """Returns what each rank says."""
        names = [f"ddprun/{what}{rank}" for rank in range(self._world)]
        try:
            answers = self._agent.store(self._generation).gather(names, _MEETING_SECONDS, names[self._rank], json.dumps(own).encode())
        except grpc_channel.RpcError as error:
            raise RuntimeError(f"MemoryCheckpoint.restore() is called by all ranks: {error.text}") from None
        return [json.loads(one) for one in answers]

    def _put(self, tree, has_generators):
        places = [(name, number, part) for name, several in self._parts.items() for number, part in enumerate(several)]
        # Optimizers last: a scheduler's load_state_dict() doesn't put its rate into the optimizer.
        for name, number, part in sorted(places, key=lambda place: isinstance(place[2], torch.optim.Optimizer)):
            state = tree["parts"][name][number]
            if isinstance(part, torch.optim.Optimizer):
                load_optimizer(part, state)
            elif isinstance(part, torch.Generator):
                part.set_state(state)
            elif state is not None:
                part.load_state_dict(as_own(state, _state_of(part)))
        self._layouts = tree["layouts"]
        for model, layout in zip(self._models(), self._layouts):
            if layout is not None and not reducer.missing_parts():
                reducer.reform(model, layout, reducer.trained(model.module))
        if has_generators:
            _set_generators(tree["generators"])

    def _all(self, kind):
        return [part for several in self._parts.values() for part in several if isinstance(part, kind)]

    def _models(self):
        return self._all(DistributedDataParallel)

    def _modules(self):
        return {("parts", name, number): part for name, several in self._parts.items() for number, part in enumerate(several)
                if isinstance(part, torch.nn.Module)}


def _state_of(part):
    if isinstance(part, torch.Generator):
        return part.get_state()
    return state_of(part) if isinstance(part, torch.nn.Module) else part.state_dict()


def _generators():
    numpy = sys.modules.get("numpy.random")
    return {"python": random.getstate(), "numpy": numpy.get_state() if numpy is not None else None, "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None}


def _set_generators(state):
    random.setstate(state["python"])
    if state["numpy"] is not None:
        import numpy
        numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])
