"""A Session over models of FSDP2 (fully_shard): each rank has a part of the state that no other rank has.

So a lost rank's part isn't in any process. Each rank saves its own every few steps into its agent's memory, with a copy on another
node (replicas.py). When a rank is lost, all go back to the newest checkpoint that all have, each in its process:

    rank 0: 20, in step 27      rank 1: 20, in step 27      rank 2: lost in step 27; its agent has 20
    they meet, with a new rank 2: all load 20, and do steps 21 to 27 again

There is a checkpoint of the beginning, too, so from then on there is always one. A broken step leaves session.step() by an
exception, because a forward pass without the others' parts has no result. FSDP2 isn't made for that: clean() brings its modules
back to what they are between two steps.
"""

import contextlib
import os
import pickle
import sys

import torch
import torch.distributed as dist

from ddprun import grpc_channel
from ddprun.elastic import replicas, resharding
from ddprun.elastic.checkpoints import Checkpoints
from ddprun.elastic.checkpoints import say as say_of_rank
from ddprun.elastic.groups import groups
from ddprun.elastic.membership import say
from ddprun.elastic.parts import Parts, several
from ddprun.elastic.seeds import Seeds
from ddprun.elastic.session import Session
from ddprun.elastic.snapshot import as_own, load_optimizer
from ddprun.elastic.store import PeerError
from ddprun.elastic.transfer import load_into, state_of

_EVERY = 10
# What clean() uses of a module's state, of the contexts that its modules share, and of the group of its parameters.
_STATE = ("_training_state", "_state_ctx", "_comm_ctx", "_modules_to_run_forward")
_CONTEXT = ("iter_forward_root", "post_backward_final_callback_queued")
_GROUP = ("fsdp_params", "_training_state", "_all_gather_result", "_post_forward_indices", "_post_reduce_event", "_all_reduce_state",
          "_reshard_after_forward_event", "_partial_reduce_output", "_to_sharded")


class NoWayBack(Exception):
    """This process can't go on; it ends, and is restarted. Not a RuntimeError: nothing is tried again."""


def is_sharded(model):
    """Whether a model, or one of several, is fully_shard()'s."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return hasattr(fsdp, "FSDPModule") and any(isinstance(one, fsdp.FSDPModule) for one in several(model))


def _states(model):
    from torch.distributed.fsdp import FSDPModule
    return [module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule)]


def _groups_of(state):
    one = getattr(state, "_fsdp_param_group", None)  # newer versions may have several
    return getattr(state, "_fsdp_param_groups", None) or ([one] if one is not None else [])


def missing_parts(model):
    """The names used here that this version of torch lacks; [] = none."""
    wanted = [(state, _STATE) for state in _states(model)]
    wanted += [(state._state_ctx, _CONTEXT) for state in _states(model) if hasattr(state, "_state_ctx")]
    wanted += [(group, _GROUP) for state in _states(model) for group in _groups_of(state)]
    return sorted({f"{type(owner).__name__}.{name}" for owner, names in wanted for name in names if not hasattr(owner, name)})


def clean(model):
    """Makes a model that an error has left in a pass idle, sharded and without gradients."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
    for state in _states(model):
        state._training_state = TrainingState.IDLE
        state._modules_to_run_forward.clear()
        for group in _groups_of(state):
            group._training_state = TrainingState.IDLE
            group._all_gather_result = group._post_reduce_event = group._all_reduce_state = None
            group._reshard_after_forward_event = group._partial_reduce_output = None
            group._post_forward_indices.clear()
            group._to_sharded()
            for parameter in group.fsdp_params:
                if "unsharded_accumulated_grad" in vars(parameter):  # since torch 2.15 it is that of the unsharded parameter
                    parameter.unsharded_accumulated_grad = None
                if hasattr(parameter, "_unsharded_param"):
                    parameter._unsharded_param.grad = None
        state._state_ctx.iter_forward_root = None
        state._state_ctx.post_backward_final_callback_queued = False
        state._comm_ctx.all_gather_state = state._comm_ctx.reduce_scatter_state = None
        getattr(state._comm_ctx, "post_forward_order", []).clear()  # there is none before the first pass
    model.zero_grad(set_to_none=True)


class ShardedParts(Parts):
    """The parts of one rank, which differ from the other ranks'. Nothing of a step is put back: all of it comes from a checkpoint."""

    def _check_models(self):
        if not all(map(is_sharded, self.models)):
            raise TypeError("elastic.Session keeps models that are all in DistributedDataParallel, or all of fully_shard()")

    def _take_buffers(self):
        pass  # each rank's stay its own

    def give_back_buffers(self):
        pass

    @staticmethod
    def _bare(model):
        return model

    def begin(self):
        if self._place is None:
            self._place = self.sampler.state_dict()

    def put_back(self):
        for model in self.models:
            clean(model)
        self.begin_scaling()

    def buffers(self):
        return []

    def put_buffers(self, buffers):
        pass

    def before_update(self, optimizer):
        pass

    def know_loads(self, membership):
        why = "the script has loaded a state after elastic.Session(), which has saved the one before"
        if membership.generation > 1:
            raise NoWayBack(f"{why}: load it before")
        say(f"{why}: a failure restarts all processes; load it before")
        membership.why_not = lambda: why

    def layouts(self):
        return []

    def load(self, state):
        for model, given in zip(self.models, state["models"]):
            if given is not None:  # else it was read into the model's own memory
                load_into(model, as_own(given, state_of(model)))
        self._put_others(state)
        self._put_trained(state)
        for buffers, given in zip(self._buffers, state["unsaved"]):
            buffers.put_unsaved(given)
        for optimizer, given in zip(self.optimizers, state["optimizers"]):
            load_optimizer(optimizer, given)
        own = [one.state_dict() for one in self.stateful()]
        self._put_small({**state["small"], "stateful": as_own(state["small"]["stateful"], own)})


class ShardMemory:
    """The checkpoints of this rank's part of the state, and other ranks' copies. Threads: the one that trains."""

    def __init__(self, membership, parts, every):
        """every: steps between two checkpoints; None = 10."""
        self._membership, self._parts = membership, parts
        self._every = _EVERY if every is None else every
        self._checkpoints = self._copies = None
        if membership is None or not self._every:
            return
        slots = 3 if self._every == 1 else 2  # as a MemoryCheckpoint
        try:
            self._checkpoints = Checkpoints(membership.agent, slots, parts.optimizers, membership.rank, membership.size)
            if membership.generation > 1 or replicas.has_other_node():  # there may be checkpoints that other ranks ask for
                self._copies = replicas.Replicas(membership.agent, self._checkpoints.slots, slots)
            if replicas.has_other_node():
                self._checkpoints.replicas = self._copies
        except (grpc_channel.RpcError, OSError) as error:
            what = "checkpoints in memory" if self._checkpoints is None else "copies of checkpoints on another node"
            say_of_rank(f"no {what}: {getattr(error, 'text', error)}")

    def is_there(self):
        return self._checkpoints is not None and not self._checkpoints.why_off

    def turn_off(self):
        self.wait()
        self.forget_others(None)
        self._checkpoints = self._copies = None

    def note(self):
        """What the other ranks are to know: the checkpoints and copies that this one has, and the places in the data."""
        if self._checkpoints is None:
            return {"own": []}
        note = self._copies.note() if self._copies is not None else {"own": replicas.note_of(self._checkpoints.slots)}
        places = {head.step: _place(self._checkpoints.peek(head.step)["sampler"]) for head in self._checkpoints.whole()}
        return {**note, "place": _place(self._parts.sampler.state_dict()), "places": places}

    def wait(self):
        """Waits for the save under way; the copy of it, too, or its end: the rank that gets it may be lost."""
        if self._copies is not None:
            self._copies.leave()
        if self._checkpoints is not None:
            self._checkpoints.wait()

    def touch_ahead(self):
        pass

    def first(self, step, tree):
        """Saves the state with which this number of ranks begins."""
        if self.is_there():
            self._checkpoints.touch_ahead(self._parts.state())
            self._checkpoints.save(step, tree)
            self._checkpoints.wait()

    def after_step(self, steps, more):
        if not self.is_there():
            return
        if self._every == 1 or (steps + 1) % self._every == 0:
            self._checkpoints.wait_for_copy()
        if steps % self._every == 0:
            self._checkpoints.save(steps, {**self._parts.state(), **more()})

    def take(self, step, holders, notes, rank):
        """Returns this rank's state of a step; the models' is read into their own memory. A collective. PeerError."""
        found = None
        if holders[rank] != rank:
            found = self._fetched(step, holders[rank], notes, rank)
        if holders != list(range(len(holders))):
            dist.barrier()  # what others fetch mustn't be forgotten before
        self.forget_others(step)
        modules = {("models", number): model for number, model in enumerate(self._parts.models)}
        return self._checkpoints.load(step, modules, found or self._checkpoints.find(step, rank))

    def take_over(self, step, world, holders, notes):
        """Returns this rank's state of a step that another number of ranks has saved. A collective. OtherLayout; PeerError."""
        parts, place = self._parts, self._membership
        own = {"models": [state_of(model) for model in parts.models],
               "optimizers": [resharding.likes_of(optimizer) for optimizer in parts.optimizers],
               "small": {"stateful": [one.state_dict() for one in parts.stateful()]}}
        former = self._copies.former(notes, step, world, holders)
        try:
            tree = resharding.tree_of(lambda source: self._checkpoints.load(step, {}, former(source)), world, place.rank, place.size, own)
        except OSError as error:
            raise PeerError(f"a former rank's checkpoint: {error}") from None
        dist.barrier()  # what others fetch mustn't be forgotten before
        return tree

    def _fetched(self, step, holder, notes, rank):
        try:
            if self._copies is None:
                raise OSError("this rank has no address")
            return self._copies.fetch(notes[holder], step, rank, len(notes))
        except OSError as error:
            raise PeerError(f"rank {holder}, which has this rank's checkpoint: {error}") from None

    def forget_others(self, step, world=None):
        """Forgets all checkpoints but those of a step, and of another number of ranks. step None: all."""
        if self._checkpoints is not None:
            self._checkpoints.slots.keep_only(step, world)
        if self._copies is not None:
            self._copies.keep_only(step, world)

    def begin_copies(self, notes, rank):
        if self._copies is not None:
            notes[rank] = self._copies.note()
            self._copies.begin(notes, rank)


def _place(state):
    return [state["epoch"], state["consumed"]]


class ShardedSession(Session):
    """A Session whose ranks all go back to a checkpoint."""

    _PARTS, _MEMORY = ShardedParts, ShardMemory
    _is_in_batches = False
    _is_back = _is_over = False  # this process has its state from checkpoints of as many ranks, or of another number
    _batches = 1  # of a step: as many as the last one had

    def _watch_passes(self):
        for model in self._parts.models:
            model.register_forward_pre_hook(self._before_pass, prepend=True)

    def _before_pass(self, *_):
        self._check_in_step("a model of fully_shard()")
        if self._broken and self._kept:
            raise PeerError("the step is broken, and comes again")

    def _swallowing(self):
        return contextlib.nullcontext()

    def _batches_of(self, loader):
        self._is_in_batches = True
        try:
            yield from super()._batches_of(loader)
        finally:
            self._is_in_batches = False

    @contextlib.contextmanager
    def step(self):
        with super().step():
            yield
        if self._broken and not self._is_in_batches:
            self._recover()  # so that the loop's condition sees the place in the data
        elif self._broken:
            self._attempted = len(self._kept) >= self._batches  # else a loop's own count of a step's batches would be wrong

    def _end(self):
        self._batches = len(self._kept)
        super()._end()

    def _beside_parts(self):
        return {**super()._beside_parts(), "batches": self._batches}

    # ---- the beginning

    def _start(self):
        missing = sorted({name for model in self._parts.models for name in missing_parts(model)})
        if not self._is_back:
            if not self._is_over:
                self._memory.forget_others(None)
            if not missing:
                self._memory.first(self._steps, {**self._parts.state(), **self._beside_parts()})
        notes = self._told("first", {**self._memory.note(), "is_there": self._memory.is_there(), "missing": missing})
        why = next((f"torch {torch.__version__} lacks {', '.join(note['missing'])}" for note in notes if note["missing"]), "")
        if not why and not all(note["is_there"] for note in notes):
            why = "not all ranks have checkpoints in memory, from which all could go on"
        if why:
            say(f"{why}: a failure restarts all processes")
            self._memory.turn_off()
            self._membership = None
            return
        if not self._is_back:
            self._memory.forget_others(self._steps, self._membership.size)
            self._memory.begin_copies(notes, self._membership.rank)
        self._membership.same_place = True
        self._membership.watch(self._parts.models)

    def _told(self, what, own):
        names = [f"ddprun/{what}{rank}" for rank in range(self._membership.size)]
        return [pickle.loads(note) for note in groups.store.gather(names[self._membership.rank], pickle.dumps(own), names)]

    def _resume(self):
        """Goes on from a checkpoint when all processes are new."""
        notes = self._told("memory", self._memory.note())
        step, world, holders = replicas.newest(notes)
        if step is None or not all("place" in note for note in notes):
            return
        saved = next(note["places"][step] for note in notes if step in note["places"])
        if saved < max(note["place"] for note in notes):
            return  # the script has loaded one that is further in the data
        if world == self._membership.size:
            self._go_back(step, holders, notes)
            return
        if not all("address" in note for note in notes):
            say(f"the checkpoints in memory are of {world} workers, and not all of {len(notes)} have an address to exchange them")
            return
        try:
            self._go_over(step, world, holders, notes)
        except resharding.OtherLayout as error:
            say(f"the checkpoints in memory are of {world} workers, and aren't for {len(notes)}: {error}")

    # ---- recovery

    def _note(self):
        return pickle.dumps({"memory": self._memory.note()})

    def _meet(self):
        had_it = self._seeds is not None
        notes = [pickle.loads(note)["memory"] for note in self._membership.rejoin(self._note())]
        self._check_place()
        step, holders = replicas.choose(notes)
        if step is None:
            raise NoWayBack("no checkpoint in memory is there for all ranks: this process ends, and is restarted")
        self._go_back(step, holders, notes)
        return not had_it

    def _check_place(self):
        sampler, place = self._parts.sampler, (self._membership.rank, self._membership.size)
        if place != (sampler.rank, sampler.world_size):
            raise NoWayBack(f"this is rank {place[0]} of {place[1]} now, and has the part of rank {sampler.rank} of "
                            f"{sampler.world_size} of a model of fully_shard(): this process ends, and is restarted")

    def _go_over(self, step, world, holders, notes):
        own = self._seeds.table
        self._load(step, self._memory.take_over(step, world, holders, notes))
        self._seeds, self._is_over = self._seeds.extended(own), True
        say(f"the state of step {step}, which {world} workers have saved in memory, is divided among {len(notes)}")

    def _go_back(self, step, holders, notes):
        rank = self._membership.rank
        self._load(step, self._memory.take(step, holders, notes, rank))
        self._memory.begin_copies(notes, rank)
        self._is_back = True

    def _load(self, step, tree):
        self._parts.load(tree)
        place, self._done = tree["end"] or (tree["sampler"], 0)
        self._parts.end()
        self._parts.sampler.load_state_dict(place)
        self._goes_on = False
        self._forget()
        self._steps, self._last, self._seeds = step, tree["end"], Seeds(tree["seeds"])
        self._batches = tree["batches"]
