"""A training loop that goes on after the loss of a peer, in the same process, as if nothing had happened.

A step is one update of the parameters, with its batches. It is broken when a peer's loss, or the end of the generation, breaks
one of its collectives. The rest of a broken step does nothing: backward passes are empty, the optimizer finds no gradients. When
the loop asks for the next batch, the ranks meet, take the newest state that any of them has, and the batches of the broken step
come again.

The newest rank is the one with the highest `position`: (steps that are done, updates of the step under way that are done). The
invariant: parameters and the optimizers' state are those of the position; all else is as at the beginning of the step under
way. Ranks differ by less than one step, because an update needs all ranks' gradients:

    rank 0: all-reduce done, updated: (8, 0)       rank 1: broken in the all-reduce: (7, 0)      rank 2: lost
    they meet, with a new rank 2 of no position: rank 0 is newest, gives its state; all train step 8
    if rank 0 was broken, too: (7, 0) is newest, and step 7's batches come again

With several optimizers a step has several updates. When the step is done again, the updates that the newest rank has done are
skipped, and the buffers are restored to what they were after these.
"""

import contextlib
import pickle
import sys
import time
import weakref
from collections import namedtuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddprun import progress
from ddprun.elastic import accelerated, handover, seeds
from ddprun.elastic.checkpoints import say as say_of_rank
from ddprun.elastic.groups import groups
from ddprun.elastic.membership import say, say_recovery
from ddprun.elastic.parts import Parts, checked_sampler, unwrapped
from ddprun.elastic.rates import Rates
from ddprun.elastic.seeds import Seeds
from ddprun.elastic.session_memory import SessionMemory
from ddprun.elastic.transfer import broadcast, refolded, tensors_in, version_of

_ADVICE = ("; this ends the process, and takes one of --max_restarts: put the collective into \"with session.step():\" (docs/ELASTIC.md, "
           "\"Collectives of your own\")")
# Names of loops' variables.
_EPOCH_NAMES = ("epoch", "ep", "epoch_idx", "epoch_index", "epoch_num", "epoch_number")
_STEP_NAMES = ("step", "steps", "global_step", "iteration", "iter_num", "it", "n_steps", "num_steps", "step_count", "steps_done", "updates")
Recovery = namedtuple("Recovery", "generation step seconds healed")
Recovery.__doc__ = """One recovery: the generation and step with which this rank went on, from the first error or the agent's word on;
whether it was given a peer's state."""


def _variables_of_caller():
    """The local variables of the function that asked for a batch."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("ddprun."):
        frame = frame.f_back
    return dict(frame.f_locals)


class _Batches:
    """A generator of a loader's batches that has the loader's length, as bars of progress and loggers ask for it."""

    def __init__(self, loader, batches, begin):
        """begin(batches) is called when the first batch is about to be read."""
        self._loader, self._batches, self._begin = loader, batches, begin

    def __len__(self):
        return len(self._loader)

    def __iter__(self):
        """Hands the generator over: the loop ends it by a break, though a bar's variable may hold this object."""
        if self._batches is None:
            return self
        self._begin(self._batches)
        batches, self._batches = self._batches, None
        return batches

    def __next__(self):
        if self._batches is None:
            raise StopIteration
        self._begin(self._batches)
        return next(self._batches)


def _optimizer_of(scheduler):
    """The optimizer whose rates a scheduler sets, accelerate's wrapper or not; None: it is no scheduler."""
    return unwrapped(getattr(getattr(scheduler, "scheduler", scheduler), "optimizer", None))


def _check_together(parts):
    """TypeError: models, optimizers and schedulers that don't belong together, or one that is forgotten."""
    parameters = {id(parameter) for model in parts.models for parameter in model.parameters()}
    for optimizer in parts.optimizers:
        if not any(id(parameter) in parameters for group in optimizer.param_groups for parameter in group["params"]):
            raise TypeError(f"elastic.Session is given an optimizer ({type(optimizer).__name__}) of none of its models' parameters: give it "
                            "the models that the optimizer trains")
        if (getattr(optimizer.step, "_wrapped_by_lr_sched", False) and not parts.schedulers
                and not any(_optimizer_of(one) is optimizer for one in parts.extra.values())):
            raise TypeError("the optimizer has a scheduler of learning rates, which a new worker wouldn't have: "
                            "Session(model, optimizer, scheduler, …)")
    for scheduler in parts.schedulers:
        of = _optimizer_of(scheduler)
        if isinstance(of, torch.optim.Optimizer) and not any(of is one for one in parts.optimizers):
            raise TypeError(f"elastic.Session is given a scheduler ({type(scheduler).__name__}) of an optimizer that it isn't given")


class Session:
    """Trains models through failures of other ranks (docs/ELASTIC.md).

    model: a DistributedDataParallel, or several; or models of fully_shard() (shards.py). optimizer, scheduler, scaler: one or
    several; the schedulers that the loop steps. sampler: the ElasticSampler of the loader. extra: {name: object with state_dict()
    and load_state_dict()} that the loop's body changes; a copy is made at each step.
    memory_every: how many steps come between two checkpoints in the agent's memory; None = as many as keep their cost below 0.5 %,
    or 10 with fully_shard(); 0 = there are none.
    Under another launcher, and where init_process_group() has said that it can't, it only counts steps and commits the sampler.
    One in a process. All ranks make it at the same place. Threads: the one that trains.
    """

    _exists = False
    _PARTS, _MEMORY = Parts, SessionMemory

    def __init__(self, model, optimizer, scheduler=None, scaler=None, *, sampler, extra=None, memory_every=None, membership=None):
        if Session._exists:
            raise RuntimeError("a process has one elastic.Session: give it all models and optimizers of the loop, or start another "
                               "script for the next training")
        self._parts = self._PARTS(model, optimizer, scheduler, scaler, checked_sampler(sampler), extra)
        self._membership = membership
        self._steps = 0        # done, before the one under way
        self._updates = 0      # of the step under way, done
        self._skips = 0        # updates still to be skipped: they were done before the step was broken
        self._kept = []        # batches of the step under way, and
        self._rest = []        # those of it that come again
        self._seen = []        # (tensor of a kept batch, its version as it was handed out)
        self._in_data = False  # these are committed to the sampler
        self._after_updates = []  # buffers after each update of the step under way
        self._last = None      # (the sampler's state as the last step began, its number of batches)
        self._goes_on = True   # the loader's iteration, after a recovery
        self._loop = None      # a weak reference to the newest generator of batches()
        self._given = None     # what a newcomer was given, until its first batch, and what shows whether the script has changed it
        self._first_state = None
        self._source = None    # (loader, its iteration) that a break has left
        self._draws = False    # reading a batch draws random numbers in this process, and training on it goes on with them
        self._first = 0        # the number in its epoch of the step's first batch
        self._is_at_end = False  # of the epoch, and not all ranks are known to be there
        self._has_met = False  # all ranks have, since the last step was begun
        self._done = 0         # batches of a step that was done by others, to be passed over
        self._broken = self._attempted = self._is_in_step = False
        self._is_updating = False  # one of its optimizers steps, perhaps by another one inside of it
        self._since = 0.0
        self._was_given = False  # a state, in the recovery under way
        self.recoveries = []
        self._memory = self._MEMORY(membership, self._parts, memory_every)
        self._rates = Rates(self._parts.optimizers)
        self._is_checked = False    # the loop's own count of epochs
        self._has_left_rest = False  # a line has said so
        _check_together(self._parts)
        self._watch_updates()
        if membership is None:
            self._parts.give_back_buffers()
            return
        Session._exists = True
        self._watch_passes()
        if membership.is_newcomer:
            self._since = time.monotonic()
            self._seeds = None
            self._recover()
        else:
            names = [f"ddprun/seed{rank}" for rank in range(membership.size)]
            told = groups.store.gather(names[membership.rank], str(Seeds.own()).encode(), names)
            self._seeds = Seeds(int(one) for one in told)
            if membership.generation > 1:
                self._resume()
            self._start()
        groups.advice = _ADVICE if self._membership is not None else ""
        self._memory.touch_ahead()
        self._first_state = self._parts.changes()

    @property
    def step_number(self):
        """How many steps are done. In a loop's body, where `enumerate` would count a batch that came again twice."""
        return self._steps + (self._updates > 0) - (self._done > 0)  # an epoch's end comes again with its last step

    @property
    def batch_number(self):
        """The number of the loop's batch in its epoch, from 0; the same on all ranks. `enumerate` begins at 0 in a new worker."""
        return self._first + max(len(self._kept) - 1, 0)

    def epochs(self, number):
        """The epochs that are still to be trained, of `number`: range(number), but a new worker begins in its peers' epoch."""
        while self._parts.sampler.epoch < number:
            yield self._parts.sampler.epoch

    def batches(self, loader):
        """The loader's batches, to the end of the epoch; those of a broken step come again. The loader has the session's sampler as
        its batch_sampler. After a break the next call goes on with the next batch. len() of it is the loader's."""
        return _Batches(loader, self._batches_of(loader), self._end_former_loop)

    def _end_former_loop(self, batches):
        """A program that still holds the iterator of a loop which it has left goes on with another one."""
        former = self._loop() if self._loop is not None else None
        if former is not batches:
            self._loop = weakref.ref(batches)
            if former is not None:
                former.close()

    def _batches_of(self, loader):
        self._check_loader(loader)
        self._check_counts(_variables_of_caller())
        self._undo_loads()
        accelerated.adapt(loader, self._parts.sampler, self._seed_place)
        ends = accelerated.Ends(loader)
        self._draws = accelerated.reads_here(loader)
        with self._swallowing():
            source = self._iteration(loader)
            while True:
                if self._must_recover():
                    self._recover()
                    if not self._goes_on:
                        source = iter(loader)
                self._pass_over(source)
                if self._rest:
                    batch = (self._rest.pop(0),)
                    ends.again(is_newest=not self._rest)
                else:
                    batch = self._read(source)
                    ends.read()
                if batch is None:
                    if self._all_at_the_end():
                        self._leave_rest()
                        return
                    continue
                if not self._kept:
                    self._begin()
                self._kept.append(refolded(batch[0]))
                self._seen += [(tensor, version_of(tensor)) for tensor in tensors_in(batch[0])]
                if not self._draws:
                    self._seed(seeds.TRAINING, len(self._kept) - 1)
                progress.mark(progress.STEP, self._steps + 1)
                try:
                    yield batch[0]
                except GeneratorExit:  # a break
                    if self._parts.sampler.consumed or self._kept and not self._in_data:
                        self._source = (loader, source, self._parts.sampler.deals)
                    raise
                finally:
                    if self._updates and not self._broken and not sys.is_finalizing():
                        self._end()

    def _check_loader(self, loader):
        sampler = self._parts.sampler
        if not isinstance(loader, torch.utils.data.DataLoader) or hasattr(loader, "gradient_state") or loader.batch_sampler is sampler:
            return
        raise TypeError("elastic.Session.batches() takes a loader of the Session's sampler: DataLoader(data, batch_sampler=sampler), "
                        "without batch_size, shuffle and sampler")

    def _check_counts(self, variables):
        """Says that a loop would train epochs or steps again, because a new worker's count of them begins at 0."""
        is_new = self._membership is not None and self._membership.generation > 1
        if self._is_checked or not is_new:
            return
        self._is_checked, epoch = True, self._parts.sampler.epoch
        for name, value in variables.items():
            if name in _EPOCH_NAMES and type(value) is int and value < epoch:
                say_of_rank(f"training is in epoch {epoch}, and the loop's {name} is {value}: the loop trains {epoch - value} epochs more "
                            f"than it should; write `for {name} in session.epochs(N)` (docs/ELASTIC.md)")
            if name in _STEP_NAMES and type(value) is int and value == 0 < self._steps:
                say_of_rank(f"{self._steps} steps are done, and the loop's {name} is 0: this worker goes on after the others have ended, if the "
                            f"loop ends by it; take session.step_number (docs/ELASTIC.md)")

    def _undo_loads(self):
        """Before the first batch: what a newcomer's script has loaded since the Session was made is older than what it was given."""
        given, before, self._given, self._first_state = self._given, self._first_state, None, None
        if before is None or before == self._parts.changes():
            return
        if given is not None:
            say_of_rank("what the script has loaded since elastic.Session() is undone: this worker has the state of its peers")
            self._take(*given, is_newcomers=True)
            self._begin_again()
        else:
            self._parts.know_loads(self._membership)

    def _iteration(self, loader):
        """The loader's iteration that a break has left, or a new one."""
        left, self._source = self._source, None
        goes_on = left is not None and left[0] is loader and left[2] == self._parts.sampler.deals
        return left[1] if goes_on else iter(loader)

    def _leave_rest(self):
        """An epoch is over within a step, as with an accumulation that doesn't divide its batches."""
        if not self._kept or self._updates:
            return
        if not self._has_left_rest:
            self._has_left_rest = True
            say(f"the epoch's last {len(self._kept)} batches came after the last optimizer.step(): their gradients stay for the next step, "
                "and are lost with a worker that is lost before it")
        self._commit(len(self._kept))
        self._parts.end()
        self._forget()

    @contextlib.contextmanager
    def step(self):
        """For a loop's body with collectives of its own: a peer's loss in one of them leaves the block, and the step comes again."""
        advice, self._is_in_step, groups.advice = groups.advice, True, ""
        try:
            yield
            if not self._broken:
                groups.settle()
        except Exception as error:
            is_peers = isinstance(error, RuntimeError) and self._is_peers(error)
            if not is_peers and not groups.gave_up():  # else the body may have read nonsense
                raise
            self._break()
            self._attempted = True
        finally:
            self._is_in_step, groups.advice = False, advice
        if not self._broken and groups.gave_up():  # what a collective of the body has returned may be wrong
            self._break()
            self._attempted = True

    def _start(self):
        """From now on this process goes on when a peer is lost."""
        self._membership.watch(self._parts.models)

    # ---- a step

    def _begin(self):
        self._has_met, self._given = False, None
        if self._membership is not None:
            self._parts.begin()
        self._first = self._parts.sampler.number_at(self._parts.place_in_data()["consumed"])

    def _end(self):
        self._steps += 1
        self._last = (self._parts.end(), len(self._kept))
        self._forget()
        self._memory.after_step(self._steps, self._beside_parts)
        if self.recoveries and self._membership is not None:
            self._rates.after_step(self._membership.rank, self._membership.size)

    def _beside_parts(self):
        """The rest of the state between two steps. Where the epoch is over, its last step's place, which leads to its end again."""
        is_at_end = self._parts.sampler.consumed == 0
        return {"seeds": self._seeds.table, "layouts": self._parts.layouts(), "after_updates": [],
                "end": self._last if is_at_end else None}

    def _resume(self):
        """Goes on from the newest checkpoint in the agents' memory, because no rank has the state any more."""
        rank, size = self._membership.rank, self._membership.size
        names = [f"ddprun/memory{one}" for one in range(size)]
        leader, steps = self._memory.agree(groups.store.gather(names[rank], self._memory.note(), names))
        if leader is not None:
            self._take_saved(leader, steps, self._seeds.table)

    def _take_saved(self, leader, steps, seeds_of_all):
        """All take the checkpoint of a step that `leader` has."""
        rank = self._membership.rank
        state = broadcast(dist.group.WORLD, self._memory.load(steps) if rank == leader else None, leader, rank)
        self._seeds = None
        self._parts.reform(state["layouts"])
        self._take(state, (steps, 0), state["end"])
        self._last = state["end"]
        self._seeds = Seeds(state["seeds"]).extended(seeds_of_all)
        self._begin_again()

    def _forget(self):
        """Forgets the step under way; another one begins."""
        self._kept, self._rest, self._seen, self._in_data, self._after_updates = [], [], [], False, []
        self._updates = self._skips = 0

    def _read(self, source):
        """(the next batch,), or None at the end."""
        if self._draws:
            self._seed(seeds.READING, len(self._kept))
        for batch in source:
            return (batch,)
        return None

    def _pass_over(self, source):
        """Brings a newcomer to the end of the epoch where the others are."""
        for _ in range(self._done):
            next(source)
            self._parts.sampler.commit()
        self._done = 0

    def _seed(self, purpose, batch):
        if self._membership is not None:
            self._seeds.set(self._membership.rank, self._steps, batch, purpose)

    def _seed_place(self, epoch, place, purpose):
        if self._membership is not None:
            self._seeds.set(self._membership.rank, epoch, place, purpose)

    def _watch_updates(self):
        for optimizer in self._parts.optimizers:
            optimizer.register_step_pre_hook(self._before_update)
            optimizer.register_step_post_hook(self._after_update)
        for scaler in self._parts.scalers:
            self._watch_scaler(scaler)
        if self._membership is not None:
            register_optimizer_step_pre_hook(self._check_optimizer)

    def _check_optimizer(self, optimizer, *_):
        """An optimizer that the loop has made since the Session would be another one in a new worker."""
        parts = self._parts
        if not self._kept or self._is_updating or any(unwrapped(optimizer) is one for one in parts.optimizers):
            return
        own = {id(parameter) for model in parts.models for parameter in model.parameters()}
        if any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            raise TypeError(f"elastic.Session isn't given the {type(optimizer).__name__} that this loop steps with: make it before the Session; "
                            "optimizer.add_param_group() adds parameters later")

    def _watch_scaler(self, scaler):
        """A scaler leaves out updates whose gradients aren't finite: on all ranks, and the step is done."""
        step = scaler.step

        def watched(optimizer, *arguments, **named):
            before = (self._updates, self._skips, self._attempted)
            result = step(optimizer, *arguments, **named)
            if before == (self._updates, self._skips, self._attempted):
                self._prepare_update(optimizer)
                self._after_update(optimizer, (), {})
            return result
        scaler.step = watched

    def _before_update(self, optimizer, arguments, named):
        self._is_updating = True
        closure = arguments[1] if len(arguments) > 1 else named.get("closure")
        if closure is None:
            self._prepare_update(optimizer)
            return None

        def guarded():
            loss = closure()
            self._prepare_update(optimizer)
            return loss
        named = {key: value for key, value in named.items() if key != "closure"}
        return (arguments[0], guarded, *arguments[2:]), named

    def _prepare_update(self, optimizer):
        if self._membership is not None and self._kept and not self._broken and not self._skips:
            self._trying(groups.settle)
            if not self._broken:
                self._trying(self._parts.before_update, optimizer)
        if self._broken or self._skips:
            self._parts.drop_gradients(optimizer)

    def _after_update(self, optimizer, arguments, named):
        # Here, not at the next batch: a checkpoint that the body saves after its update must have the state after it.
        self._is_updating = False
        if not self._kept:
            return
        if self._broken:
            self._attempted = True
            self._parts.fill_gradients(optimizer)
            return
        if self._skips:
            self._parts.fill_gradients(optimizer)
            self._parts.updated(optimizer)
            self._parts.put_buffers(self._after_updates[self._updates])
            self._skips -= 1
        elif (len(self._parts.optimizers) > 1 or self._is_in_step) and self._membership is not None:
            self._after_updates.append(self._parts.buffers())
        self._updates += 1
        if not self._in_data:
            self._commit(len(self._kept))

    def _commit(self, batches):
        for _ in range(batches):
            self._parts.sampler.commit()
        self._in_data = True

    # ---- what breaks

    def _watch_passes(self):
        """Guards DDP's forward pass, which has collectives, too. In the class, because an attribute of a model is copied with it."""
        own, forward = self._parts.models, DistributedDataParallel.forward
        synchronized = [model for model in own if any(isinstance(module, torch.nn.SyncBatchNorm) for module in model.modules())]

        def guarded(model, *arguments, **named):
            if any(model is one for one in own):
                if any(model is one for one in synchronized):
                    self._check_in_step("SyncBatchNorm")
                return self._pass(forward, model, *arguments, **named)
            # A model that the loop trains without the Session's knowledge would be another one in a new worker.
            if self._kept and model.training and torch.is_grad_enabled():
                raise TypeError(f"elastic.Session isn't given the {type(model.module).__name__} in DistributedDataParallel that this loop "
                                "trains, too: Session([one, other], [its optimizer, the other's], …)")
            return forward(model, *arguments, **named)
        DistributedDataParallel.forward = guarded

    def _pass(self, forward, model, *arguments, **named):
        """A forward pass. In a broken step the bare module's instead."""
        if not self._broken:
            self._note_buffers()  # of a step with several updates; this pass changes them
            result = self._trying(forward, model, *arguments, **named)
            if not self._broken:
                return result
        return model.module(*arguments, **named)

    def _note_buffers(self):
        while len(self._after_updates) < self._updates:
            self._after_updates.append(self._parts.buffers())

    def _check_in_step(self, what):
        if self._membership is not None and self._kept and not self._is_in_step:
            raise TypeError(f"{what} takes `with session.step():` around the body of the loop (docs/ELASTIC.md)")

    @contextlib.contextmanager
    def _swallowing(self):
        """Makes backward passes that a peer's loss breaks do nothing."""
        if self._membership is None:
            yield
            return
        backward = torch.autograd.backward

        def guarded(*arguments, **named):
            if not self._broken:
                self._trying(backward, *arguments, **named)
            if self._broken:
                self._parts.fill_gradients()
        torch.autograd.backward = guarded
        try:
            yield
        finally:
            torch.autograd.backward = backward

    def _trying(self, function, *arguments, **named):
        try:
            result = function(*arguments, **named)
            if groups.gave_up():
                self._break()
            return result
        except RuntimeError as error:
            if not self._is_peers(error):
                raise
            self._break()
            return None

    def _break(self):
        if not self._broken:
            self._broken, self._since = True, time.monotonic()

    def _is_peers(self, error):
        """Whether an error comes from a peer's loss instead of this rank."""
        return self._membership is not None and self._membership.caused(error)

    # ---- recovery

    def _must_recover(self):
        if self._membership is None:
            return False
        # Without an error, only between two steps: a loop's own count of batches in a step stays right.
        return self._attempted if self._broken else bool(self._membership.over.why) and not self._kept

    def _all_at_the_end(self):
        """Whether all ranks have come to the end of the epoch. A rank that was lost in its last step needs the others."""
        if self._membership is None or self._has_met:
            return True
        self._is_at_end = not self._kept
        if not self._broken:
            self._trying(dist.barrier)
        self._attempted = self._broken
        self._is_at_end = self._is_at_end and self._broken
        return not self._broken

    def _recover(self):
        """Meets the others, and begins the step under way anew."""
        since = self._since or time.monotonic()
        self._goes_on, self._was_given = True, False
        self._note_buffers()
        self._memory.wait()
        self._parts.put_back()
        self._parts.drop_gradients()
        while True:
            try:
                was_healed = self._meet()
                break
            except RuntimeError as error:
                if not self._is_peers(error):
                    raise
        accelerated.follow(self._membership.rank, self._membership.size)
        self._broken = self._attempted = self._is_at_end = False
        self._since, self._has_met = 0.0, True
        self.recoveries.append(Recovery(self._membership.generation, self._steps, time.monotonic() - since, was_healed))
        say_recovery(self._membership, self.recoveries[-1])
        self._rates.recovered()

    # ---- for handover.exchange()

    def _position(self):
        return None if self._seeds is None else (self._steps, self._updates + self._skips)

    def _offered(self):
        end = self._last if self._is_at_end else None
        return {**self._state(), "layouts": self._parts.layouts(), "seeds": self._seeds.table, "end": end}, self._is_at_end

    def _take_offered(self, state, position):
        self._parts.know_layouts(state["layouts"])
        self._take(state, position, state["end"])
        if self._seeds is None and state["end"] is not None:
            self._last, self._is_at_end = state["end"], True
        self._seeds = Seeds(state["seeds"])

    def _note(self):
        note = {"seed": Seeds.own(), "position": self._position(), "layouts": None, "seeds": [], "end": None, "memory": None}
        if self._seeds is not None:
            note.update(layouts=self._parts.layouts(), seeds=self._seeds.table, end=self._last if self._is_at_end else None)
        else:
            note["memory"] = self._memory.note()
        return pickle.dumps(note)

    # ----

    def _state(self):
        return {**self._parts.state(), "after_updates": self._after_updates}

    def _meet(self):
        """Returns whether this rank was given a state."""
        notes = [pickle.loads(note) for note in handover.exchange(
            self._membership, self._position, self._offered, self._take_offered, self._note)]
        rank = self._membership.rank
        newest = max((note["position"] for note in notes if note["position"] is not None), default=None)
        if newest is None:  # all that had a state were lost meanwhile
            leader, steps = self._memory.agree([note["memory"] for note in notes])
            if leader is not None:
                self._take_saved(leader, steps, [note["seed"] for note in notes])
                return True
        leader = next(number for number, note in enumerate(notes) if note["position"] == newest)
        self._parts.reform(notes[leader]["layouts"] or [None] * len(self._parts.models))
        if newest is None or any(note["position"] != newest for note in notes):
            state = broadcast(dist.group.WORLD, self._state() if rank == leader else None, leader, rank)
            if rank != leader and (self._seeds is None or self._position() != newest):
                self._take(state, newest or (0, 0), next((note["end"] for note in notes if note["end"]), None))
        self._seeds = Seeds(notes[leader]["seeds"]).extended([note["seed"] for note in notes])
        self._begin_again()
        return self._was_given

    def _take(self, state, position, end, is_newcomers=False):
        """Takes a peer's state. end: the place of the last epoch's end, from the ranks that have come to it. is_newcomers: this
        process has no step under way."""
        is_newcomers = is_newcomers or self._seeds is None
        self._given = (state, position, end)
        self._parts.load(state)
        self._was_given = True
        if is_newcomers or position[0] != self._steps:  # else its own batches are those of the step under way
            batches = self._kept + self._rest
            if batches and not self._in_data and position == (self._steps + 1, 0):
                self._commit(len(batches))  # so that the loader's next batch is the right one
            place, self._done = end if is_newcomers and end is not None else (state["sampler"], 0)
            self._goes_on = self._parts.go_to(place) and self._goes_on
            self._forget()
        (self._steps, self._updates), self._skips = position, 0
        self._after_updates = state["after_updates"]

    def _begin_again(self):
        sampler, place = self._parts.sampler, (self._membership.rank, self._membership.size)
        has_changed = any(version_of(tensor) != version for tensor, version in self._seen)  # by the body of the loop, in place
        self._kept, self._rest, self._seen = [], self._kept + self._rest, []
        has_changed |= not all(map(tensors_in, self._rest))  # maybe: what batches of unknown kinds hold isn't known
        if has_changed or self._draws and self._rest or (sampler.rank, sampler.world_size) != place:
            if sampler.state_dict() != self._parts.place_in_data():
                sampler.load_state_dict(self._parts.place_in_data())
            sampler.reform(*place)  # the step's samples are dealt, and read, anew
            self._parts.end()
            self._rest, self._in_data = [], False
            self._goes_on = self._goes_on and self._is_at_end  # the epoch has no batch more
        self._parts.begin_again()
        self._skips, self._updates = self._updates + self._skips, 0
