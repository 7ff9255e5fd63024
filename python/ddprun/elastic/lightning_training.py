"""One Trainer.fit() of Lightning's that goes on after the loss of a peer. Lightning's loops run as they are, with hooks into them.

An update of the parameters is done again when a peer's loss breaks it: Lightning gives the optimizer a closure with the last
batch's passes, and calling the closure again repeats them (update()). All other collectives are repeated where they are called
(journal.py), so no hook of a callback runs twice on a survivor.

A newcomer sets itself up with a stand-in group, in which it gets the results that set-up collectives have given its peers. When
its training starts it meets the others, takes their newest state, and enters the loops at a batch:

    in a step      the survivors' newest is in a step: the newcomer begins with that step's first batch
    after a step   the survivors are between two steps, for example in a validation: the newcomer begins with the last batch of
                   the step before, passes over its update, because it has the state after it, and does all that follows

The newest rank is the one with the highest position: (updates done, whether it is in the next step, collectives done since).
"""

import pickle
import signal
import threading
import time

import torch
import torch.distributed as dist

from ddprun import progress
from ddprun.elastic import reducer, seeds, unkept
from ddprun.elastic.buffers import Buffers
from ddprun.elastic.groups import groups
from ddprun.elastic.lightning_state import State, counters, mixed, set_counters, trackers
from ddprun.elastic.membership import say_recovery
from ddprun.elastic.parts import options_of, put_options
from ddprun.elastic.seeds import Seeds
from ddprun.elastic.session import Recovery
from ddprun.elastic.store import JobOver
from ddprun.elastic.transfer import broadcast, copied, version_of

UPDATED = 2  # a purpose of random numbers: all that follows an update
_ENTRY = -2  # the journal's number of updates until a newcomer has reached its peers' batch
GIFT_BYTES = 1 << 20
_BLOB_BYTES = 1024  # what a rank sends to the others before an update, at first


class _Broken(Exception):
    """Leaves the optimizer's step, before it changes anything."""


class Training:
    """Threads: the one that trains."""

    def __init__(self, strategy, trainer, membership, journal, batches, on_refusal=None):
        """batches: the batch sampler of the training's loader, a Batches. on_refusal(what): says what isn't kept, of a script that
        hasn't asked to be kept; None = an error does."""
        self._trainer, self._membership, self._journal, self._batches = trainer, membership, journal, batches
        self._model = strategy.model
        self._optimizers = list(trainer.optimizers)
        self._schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._parameters = list(self._model.module.parameters())
        self._wrapped = reducer.trained(self._model.module)
        self._buffers = Buffers(self._model.module, self._model.parameters_to_ignore)
        self._has_own_buffers = bool(self._model.broadcast_buffers)
        self._model.broadcast_buffers = False  # made equal before each update instead: no rank's are lost with it
        self._on_refusal, self._why_not = on_refusal, ""
        self._unkept = None      # of such a script
        self._noted, self._is_updating = None, False  # of _note_versions()
        self._entered_at = None  # a newcomer's updates as it entered the loops
        self._state = State(trainer, self._refuse)
        self._place = membership.rank, membership.size
        self._layout, self._is_settled = None, False
        self._seeds = None
        self.updates = 0        # done
        self._in_step = False    # a batch of the next update was begun
        self._micro = 0          # the batch's number in the step
        self._first = self._last = None  # the shared state as the step's first batch, and the newest batch, began
        self._small = None       # what schedulers change, as the step began
        self._own = None         # this rank's own values then
        self._told = []          # all ranks' values before the last update, pickled
        self._next_told = None   # before the one under way: (this rank's own, all ranks' pickled)
        self._own_told = None    # what this rank has sent of its own before the last update
        self._after = None       # counters after it
        self._capacity = _BLOB_BYTES
        self._epoch_log = []     # results of collectives as the epoch began
        self._is_resumed = False  # the epoch was begun before a checkpoint, so its beginning has no hooks
        self._entry = None       # on a newcomer, until it enters the loops: the state that it was given
        self._passes_over = False
        self._broken = False
        self.recoveries = []

    # ---- the beginning and the end

    def begin(self):
        """All processes call it when their set-up is done."""
        fit, loop = self._trainer.fit_loop, self._trainer.fit_loop.epoch_loop
        self._advance, self._start_epoch = loop.advance, fit.on_advance_start
        loop.advance, fit.on_advance_start = self._do_batch, self._begin_epoch
        self._run_start, loop.on_run_start = loop.on_run_start, self._enter
        if not self._membership.is_newcomer:
            self._membership.gift = pickle.dumps(self._journal.entries)
            if len(self._membership.gift) > GIFT_BYTES:
                raise RuntimeError(f"elastic.DDPStrategy: collectives of the set-up have given {len(self._membership.gift)} bytes, and "
                                   f"a new worker can be given {GIFT_BYTES}: read such data from files")
            self._look()
            return
        self._recover(may_skip=False)
        self._entered_at = self.updates
        self._look()
        for name, tracker in trackers(self._trainer).items():
            values = self._entry["shared"]["counters"][name]
            set_counters(tracker, self._epoch_before(values) if name == "epoch" and not self._is_resumed else values)

    def _look(self):
        """Has the script's own objects compared with what they are now, when a worker is lost."""
        if self._on_refusal is not None:
            self._membership.why_not = self._why_it_ends
            # A newcomer's first step makes what the others had made in their sanity check, as a mask of the first forward pass. What
            # that step changes otherwise, theirs has changed as well.
            if self._entered_at != self.updates:
                self._unkept = unkept.Watch(*self._state.own_objects())

    def _why_it_ends(self):
        """Why this process can't go on after a loss; "" = it can."""
        if self._why_not:
            return self._why_not
        if self._has_moved():
            return "parameters or buffers were changed after the update, and a new worker would change them again"
        changed = [] if self._unkept is None else self._unkept.changed()
        return f"a new worker can't be given {', '.join(changed[:3])}" if changed else ""

    def _note_versions(self):
        """Call it when parameters and buffers are such as a new worker would begin with."""
        self._noted = self._in_step, self._versions(self._in_step)
        self._is_updating = False

    def _versions(self, in_step):
        """What changes with the state between two updates; within a step with trained parameters alone: passes change buffers."""
        tensors = [one for one in self._parameters if one.requires_grad] if in_step else [*self._parameters, *self._buffers.tensors()]
        return [(id(one), version_of(one)) for one in tensors]

    def _has_moved(self):
        """Whether something else than the optimizer has changed the state since. Threads: any."""
        noted = self._noted
        return noted is not None and self._versions(noted[0]) != noted[1] and not self._is_updating and noted is self._noted

    def _refuse(self, what, text):
        if self._on_refusal is None:
            raise TypeError(f"elastic.DDPStrategy can't keep {text}")
        if not self._why_not:
            self._why_not = what
            self._on_refusal(what)

    def end(self):
        """Returns when all ranks have come to the end of the training."""
        if self._seeds is not None:
            dist.barrier()
        self._membership.why_not = lambda: "a worker was lost after fit()"
        groups.journal = None
        progress.mark(progress.Phase.IDLE, self.updates)

    def leave(self):
        """Lightning's loops are their own again."""
        fit, loop = self._trainer.fit_loop, self._trainer.fit_loop.epoch_loop
        for owner, name in ((loop, "advance"), (loop, "on_run_start"), (fit, "on_advance_start"), (loop.automatic_optimization, "run")):
            vars(owner).pop(name, None)

    def _watch(self):
        """From here on a loss is survived."""
        membership = self._membership
        names = [f"ddprun/seed{rank}" for rank in range(membership.size)]
        told = groups.store.gather(names[membership.rank], str(Seeds.own()).encode(), names)
        self._seeds = Seeds(int(one) for one in told)
        self._journal.go_to(0)
        self._journal.recover = self._recover_in_place
        membership.same_place = True
        membership.watch([self._model])

    # ---- the loops

    def _begin_epoch(self):
        """In place of _FitLoop.on_advance_start()."""
        if self._entry is None:
            begin, epochs = self._journal.at, self._trainer.fit_loop.epoch_progress.total.ready
            self._start_epoch()
            self._epoch_log = self._journal.slice(begin)
            self._is_resumed = self._trainer.fit_loop.epoch_progress.total.ready == epochs
            return
        if self._is_resumed:
            self._batches.set_epoch(self._trainer.fit_loop.epoch_progress.current.processed)
            self._journal.go_to(*self._entry["shared"]["at"])
            return
        trainer = self._trainer
        self._journal.take({(_ENTRY, number): entry for number, entry in enumerate(self._epoch_log)})
        self._journal.at, self._journal.alone = (_ENTRY, 0), "as it enters an epoch that its peers have begun"
        loggers, trainer.loggers = trainer.loggers, []  # what is logged as an epoch begins was logged
        try:
            self._start_epoch()
        finally:
            trainer.loggers = loggers
        self._journal.alone = ""
        self._journal.go_to(*self._entry["shared"]["at"])

    def _enter(self, fetcher):
        """In place of _TrainingEpochLoop.on_run_start(), once. The data begin at the batch of the counters: a newcomer's, or a
        checkpoint's, with which Lightning would begin at an epoch's first batch."""
        loop, state, self._entry = self._trainer.fit_loop.epoch_loop, self._entry, None
        del loop.on_run_start
        batch = loop.batch_progress.current.ready if state is None else state["shared"]["counters"]["batch"][1]["ready"]
        self._batches.start_at(batch)
        iter(fetcher)
        self._run_start(fetcher)
        self._batches.start_at(0)
        if state is None:
            return
        self._state.set_shared(state["shared"])
        fetcher.fetched = batch
        if state["in_step"]:
            self._in_step = False  # the step's first batch begins
            mine, leader = (pickle.loads(state["told"][rank]) if state["told"] else None
                            for rank in (self._membership.rank, state["leader"]))
            self._state.set_own_values(mixed(state["own"], mine, leader), state["kinds"])
            return
        self._passes_over = True
        loop.automatic_optimization.run = lambda *_: self._pass_over(state)

    def _pass_over(self, state):
        """In place of _AutomaticOptimization.run(), once, on a newcomer: the update that its peers have done."""
        del self._trainer.fit_loop.epoch_loop.automatic_optimization.run
        self._passes_over = False
        own = pickle.loads(state["told"][self._membership.rank])
        self._state.set_own_values(own, state["kinds"])
        for name, values in state["after"].items():
            set_counters(trackers(self._trainer)[name], values)
        self._begin_segment()
        return {"loss": torch.tensor(own["loss"][0], dtype=own["loss"][1])}

    def _do_batch(self, fetcher):
        """In place of _TrainingEpochLoop.advance()."""
        if self._seeds is None:
            self._watch()
        if not self._passes_over:
            self._begin_batch()
        self._seed(seeds.READING)
        self._advance(fetcher)

    def _begin_batch(self):
        if not self._in_step and self._told and self._has_news():
            self._tell_shown()
        shared = {**self._state.shared(is_kept=not self._why_not), "at": self._journal.at}
        self._last = shared
        if self._in_step:
            self._micro += 1
            return
        if self._unkept is None:
            self._look()
        self._in_step, self._micro, self._first = True, 0, shared
        self._own = self._state.own()
        self._check_own()
        self._small = {"groups": [options_of(one) for one in self._optimizers],
                       "schedulers": [copied(one.state_dict()) for one in self._schedulers]}
        self._buffers.keep()
        self._note_versions()
        progress.mark(progress.STEP, self.updates + 1)

    def _has_news(self):
        """Whether an epoch or a validation has ended since the last step began: only these change what is shown between steps."""
        then, now = self._first["counters"], self._state.counters()
        return any(then[name][0] != now[name][0] for name in ("epoch", "validation"))

    def _tell_shown(self):
        shown = [None] * self._membership.size
        dist.all_gather_object(shown, self._state.plain(self._state.own())["shown"])
        self._told = [pickle.dumps({**pickle.loads(told), "shown": one}) for told, one in zip(self._told, shown)]

    def _check_own(self):
        """An epoch's sum that is added to between an update and the next batch isn't known to the others."""
        for name, hook in self._state.logged_late(self._own_told) if self._own_told else []:
            self._refuse(f"{name!r}, which is logged in {hook} with on_epoch=True", f"{name!r}, which is logged in {hook} with "
                         "on_epoch=True: log it in training_step, or with on_epoch=False")

    def seed_training(self):
        """Call it before each batch's passes."""
        self._seed(seeds.TRAINING)

    def _seed(self, purpose):
        if self._seeds is not None:
            micro = 0 if purpose == UPDATED else self._micro
            self._seeds.set(self._membership.rank, self.updates, micro, purpose)

    # ---- a step

    def update(self, attempt, closure):
        """Does an update: attempt(closure), which calls the closure once before it changes anything. Repeats both until no peer's
        loss has broken them."""
        if self._why_not:
            return self._update_once(attempt, closure)
        at, own, buffers = self._journal.at, self._state.kept(), self._buffers.copies()
        gradients = [None if one.grad is None else one.grad.clone() for one in self._parameters] if self._micro else []
        while True:
            try:
                result = attempt(lambda: self._whole(closure))
                break
            except _Broken:
                result = None
                if self._recover(may_skip=True):
                    break
            self._journal.at = at
            self._state.put_back(own)
            self._buffers.put(buffers)
            for parameter, gradient in zip(self._parameters, gradients or [None] * len(self._parameters)):
                parameter.grad = None if gradient is None else gradient.clone()
            self._seed(seeds.TRAINING)
        self._end_step()
        return result

    def _update_once(self, attempt, closure):
        """Does an update of a training that isn't kept: nothing is copied for it."""
        try:
            result = attempt(lambda: self._whole(closure))
        except _Broken:
            self._recover(may_skip=False)  # ends the process
            raise
        self._end_step()
        return result

    def _whole(self, closure):
        """The closure's passes, and what all ranks must know before they update."""
        try:
            loss = closure()
        except RuntimeError as error:
            if not self.is_peers(error):
                raise
            raise _Broken from None
        if loss is None:
            self._refuse("an optimizer_step() that calls the closure by itself",
                         "an optimizer_step() that calls the closure by itself: give it to optimizer.step()")
        if not self._broken:
            self.guarded(self._tell, loss)
        if self._broken:
            raise _Broken
        self._is_updating = True
        return loss

    def guarded(self, function, *arguments, **named):
        """Calls what has collectives of the model's in it; a peer's loss breaks the step."""
        try:
            with self._journal.paused():
                result = function(*arguments, **named)
            if groups.gave_up():
                self._broken = True
            return result
        except RuntimeError as error:
            if not self.is_peers(error):
                raise
            self._broken = True
            return None

    def _tell(self, loss):
        """Sends this rank's values to the others, and makes the buffers equal. Has buckets rebuilt before the first update, not in the
        second step's forward pass: so a rank that has done an update knows the layout of all that follow."""
        self._is_settled = self._is_settled or reducer.rebuild(self._model)
        own = self._state.own()
        blob = pickle.dumps({**self._state.plain(own), "loss": loss if loss is None else (loss.item(), loss.dtype)})
        while True:
            mine = torch.zeros(self._capacity, dtype=torch.uint8)
            size = len(blob).to_bytes(8, "little")
            part = size + blob[:self._capacity - 8]
            mine[:len(part)] = torch.frombuffer(bytearray(part), dtype=torch.uint8)
            all_of_them = [torch.empty_like(mine) for _ in range(self._membership.size)]
            dist.all_gather(all_of_them, mine)
            texts = [one.numpy().tobytes() for one in all_of_them]
            sizes = [int.from_bytes(text[:8], "little") for text in texts]
            if max(sizes) + 8 <= self._capacity:
                break
            self._capacity = 2 * max(sizes)
        if self._has_own_buffers:
            self._buffers.equalize(self._model.process_group)
        if not self._broken:
            self._next_told = own, [text[8:8 + size] for text, size in zip(texts, sizes)]

    def _end_step(self):
        """The update is done."""
        self._own_told = None
        if self._next_told is not None:
            (self._own_told, self._told), self._next_told = self._next_told, None
        self.updates += 1
        step, zero_grad = (counters(trackers(self._trainer)[name]) for name in ("step", "zero_grad"))
        for one in step[:2]:
            one["completed"] = one["ready"]
        self._after = {"step": step, "zero_grad": zero_grad}
        self._begin_segment()

    def _begin_segment(self):
        self._in_step = self._broken = False
        self._journal.go_to(self.updates)
        self._micro = 0
        self._note_versions()
        self._seed(UPDATED)

    # ---- what breaks

    def is_peers(self, error):
        return self._membership.caused(error)

    def _recover_in_place(self):
        self._recover(may_skip=False)

    def _recover(self, may_skip):
        """Meets the others. may_skip: the update under way may be taken from a peer that has done it. Returns whether it was."""
        since = time.monotonic()
        generator = torch.get_rng_state()
        while True:
            try:
                with self._journal.paused():
                    was_healed = self._meet(may_skip)
                break
            except RuntimeError as error:
                if not self.is_peers(error):
                    raise
        torch.set_rng_state(generator)
        self._broken = False
        self.recoveries.append(Recovery(self._membership.generation, self.updates, time.monotonic() - since, was_healed))
        say_recovery(self._membership, self.recoveries[-1])
        return was_healed

    def _note(self):
        note = {"seed": Seeds.own(), "position": None, "layout": None, "seeds": [], "capacity": self._capacity, "why_not": self._why_it_ends()}
        if self._seeds is not None:
            self._layout = reducer.layout_of(self._model) or self._layout
            note.update(position=(self.updates, self._in_step, self._journal.count(self.updates)), layout=self._layout,
                        seeds=self._seeds.table)
        return pickle.dumps(note)

    def _meet(self, may_skip):
        membership = self._membership
        self._leave_a_job_that_is_over()
        notes = [pickle.loads(note) for note in membership.rejoin(self._note())]
        if (membership.rank, membership.size) != self._place:
            raise RuntimeError(f"elastic.DDPStrategy: this is rank {membership.rank} of {membership.size} now, and was {self._place[0]} of "
                               f"{self._place[1]}; a Trainer can't change its devices: all processes are restarted")
        why = next((note["why_not"] for note in notes if note["why_not"]), "")
        if why:
            raise RuntimeError(f"ddprun.elastic: {why}: all processes are restarted")
        self._capacity = max(note["capacity"] for note in notes)
        positions = [note["position"] for note in notes]
        newest = max((one for one in positions if one is not None), default=None)
        if newest is None:
            raise RuntimeError("elastic.DDPStrategy: all workers that had the state are lost: all processes are restarted")
        leader = positions.index(newest)
        self._layout = notes[leader]["layout"]
        reducer.reform(self._model, self._layout, self._wrapped)
        self._is_settled = False
        state = self._whole_state(leader) if membership.rank == leader else None
        was_healed = False
        if any(one != newest for one in positions):
            state = broadcast(dist.group.WORLD, state, leader, membership.rank)
            if membership.rank != leader:
                was_healed = self._take(state, newest, may_skip)
        self._seeds = Seeds(notes[leader]["seeds"]).extended([note["seed"] for note in notes])
        return was_healed

    def _leave_a_job_that_is_over(self):
        """Lightning's handler of SIGTERM only makes a note, and the agent's signal has to end this process."""
        over = self._membership.over
        if not over.why:
            return
        over.wait(lambda told: told.place is not None or told.fatal)
        if over.fatal and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if getattr(self._trainer, "received_sigterm", False):
                raise JobOver(f"the job doesn't go on with this process: {over.why}")

    # ---- the state

    def _whole_state(self, leader):
        """For ranks with an older one."""
        buffers = self._buffers.kept() if self._in_step else self._buffers.placed()
        return {"leader": leader, "in_step": self._in_step, "shared": self._first if self._in_step else self._last, "first": self._first,
                "after": self._after, "parameters": list(self._model.module.parameters()), "trained": reducer.trained(self._model.module),
                "buffers": buffers,
                "optimizers": [one.state_dict() for one in self._optimizers], "small": self._small, "own": self._state.plain(self._own),
                "kinds": self._state.kinds(), "told": self._told, "log": self._journal.entries, "epoch_log": self._epoch_log,
                "is_resumed": self._is_resumed}

    def _take(self, state, newest, may_skip):
        """Takes a peer's state. Returns whether this rank has got parameters."""
        self._journal.take(state["log"])
        is_new = self._seeds is None
        if not is_new and (newest[0] == self.updates or not may_skip):
            return False  # it goes on in its place
        with torch.no_grad():
            for parameter, given in zip(self._model.module.parameters(), state["parameters"]):
                parameter.copy_(given)
        reducer.set_trained(self._model.module, state["trained"])
        self._buffers.put(state["buffers"])
        for one, given in zip(self._optimizers, state["optimizers"]):
            one.load_state_dict(given)
        if is_new:
            self._small = state["small"]
            for one, given in zip(self._schedulers, copied(self._small["schedulers"])):
                one.load_state_dict(given)
        for one, kept in zip(self._optimizers, self._small["groups"]):
            put_options(one, kept)
        self._told = state["told"]
        if is_new:
            self.updates, self._in_step = newest[:2]
            self._first, self._last = state["first"], state["shared"]
            self._own, self._after = state["own"], state["after"]
            self._epoch_log, self._is_resumed = state["epoch_log"], state["is_resumed"]
            self._buffers.keep()
            self._entry = state
            self._journal.alone, self._journal.recover = "", self._recover_in_place
        return True

    def _epoch_before(self, values):
        """Counters of epochs before Lightning counts the one that a newcomer enters."""
        total, current, last = copied(values)
        for one in (total, current):
            one["ready"] -= 1
            one["started"] -= 1
        return total, current, last
