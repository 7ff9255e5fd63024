"""Hugging Face's Trainer trains through failures: attach(trainer), before trainer.train().

The Trainer's loop stays its own. When a peer's loss breaks one of its collectives, the error leaves the epoch under way; here it
is caught, the ranks meet, and the same epoch is entered again at the step where the furthest rank is. The Trainer has a way of
its own to enter an epoch at a step, for checkpoints. All ranks take it, the newcomer too, so all run the same collectives from
there on, whatever a child of the Trainer adds to a step.

A rank's *position* is (updates that are done, phase). What is between two updates is divided, because a newcomer must do again
what the others do again:

    0  the log, evaluation and checkpoint after an update     _maybe_log_save_evaluate(), done again from its beginning
    1  the rest of the epoch: the next step, or its end       _run_epoch(), entered again after the steps that are done
    2  the epoch is over                                      the next one, or the end of the training

    rank 0: update 7 done, evaluates: (7, 0)      rank 1: the same      rank 2: lost
    they meet, with a new rank 2 of no position: it gets rank 0's state of (7, 0)
    all evaluate, each is at (7, 1) then, and trains step 8

The invariant: at a meeting each rank's state is that of its position, because put_back() restores what changed since. The loop's
changes are few and known (trainer_memory.py); the model is changed by updates only. A rank that is behind takes the state of the
one with the highest position. The losses since the last log differ by rank, and are exchanged before each update, so that a
lost rank's part of them is known.

A newcomer builds its Trainer and enters train() alone, on a group that stands in. It meets the others when the loop begins, and
passes over the epochs that are done.
"""

import inspect
import pickle
import time

import torch
import torch.distributed as dist

from ddprun import progress
from ddprun.elastic import handover, seeds, unkept
from ddprun.elastic.groups import groups
from ddprun.elastic.membership import say_recovery
from ddprun.elastic.parts import Parts
from ddprun.elastic.seeds import Seeds
from ddprun.elastic.session import Recovery, Session
from ddprun.elastic.store import PeerError
from ddprun.elastic.trainer_data import ORDER, Reader, seed_generators, why_not
from ddprun.elastic.trainer_memory import Memory
from ddprun.elastic.transfer import broadcast

_AFTER, _EPOCH, _OVER = 0, 1, 2  # phases
_BETWEEN = 2  # purpose of a seed: what is between two steps
_PARTS = ("_init_training_state", "_run_epoch", "get_batch_samples", "get_eval_dataloader", "training_step", "_maybe_log_save_evaluate", "_evaluate",
          "_save_checkpoint", "_load_rng_state", "_finalize_training")
_ARGUMENTS = {
    "_run_epoch": ("model", "epoch", "num_update_steps_per_epoch", "trial", "ignore_keys_for_eval", "start_time",
                   "resume_from_checkpoint", "epochs_trained", "steps_trained_in_current_epoch"),
    "_maybe_log_save_evaluate": ("tr_loss", "grad_norm", "model", "trial", "epoch", "ignore_keys_for_eval", "start_time",
                                 "learning_rate")}
# In place of a checkpoint: the state is there already.
_RESUMED = "(a peer's state)"
# What a script gives a Trainer, beside the model and callbacks.
_OF_SCRIPTS = ("data_collator", "train_dataset", "eval_dataset", "compute_metrics", "compute_loss_func", "preprocess_logits_for_metrics")
# Optimizers that update in backward passes, or swap the parameters for evaluations.
_OPTIMIZERS = ("lomo", "adalomo", "layerwise", "schedule_free")


def missing_parts(trainer):
    """The names used here that this version of transformers lacks; [] = none."""
    missing = [f"Trainer.{name}" for name in _PARTS if not hasattr(trainer, name)]
    for name, wanted in _ARGUMENTS.items():
        known = inspect.signature(getattr(trainer, name)).parameters if hasattr(trainer, name) else wanted
        missing += [f"Trainer.{name}({one}=)" for one in wanted if one not in known]
    return missing


def _obstacle(trainer):
    """What of a Trainer isn't kept; "" = nothing."""
    args = trainer.args
    found = (
        (trainer.is_deepspeed_enabled, "DeepSpeed"),
        (trainer.is_fsdp_enabled, "FSDP"),
        (getattr(trainer, "is_model_parallel", False) or args.n_gpu > 1, "a model on several devices"),
        (getattr(trainer, "is_distributed_loading_by_transformers", False), "a model that is sharded when it is loaded"),
        (getattr(trainer.accelerator, "parallelism_config", None) is not None, "parallelism_config"),
        (args.torch_compile, "torch_compile=True"),
        (args.auto_find_batch_size, "auto_find_batch_size=True"),
        (getattr(args.accelerator_config, "dispatch_batches", None), "dispatch_batches=True"),
        (getattr(args.accelerator_config, "use_stateful_dataloader", False), "use_stateful_dataloader=True"),
        (isinstance(trainer.train_dataset, torch.utils.data.IterableDataset),
         "an IterableDataset (its place in the data isn't known)"),
        (hasattr(trainer, "_buffered_inputs"), f"the {type(trainer).__name__}, which keeps batches for several steps"),
        (any(word in str(getattr(args.optim, "value", args.optim)) for word in _OPTIMIZERS), f"optim={args.optim!s}"))
    return next((what for is_there, what in found if is_there), "")


def _refuse(what):
    raise ValueError(f"elastic.attach() can't keep {what}, through a failure: train without attach(), with restarts from checkpoints")


class Attached:
    """What attach() adds to a Trainer. recoveries: as a Session's."""

    def __init__(self, trainer, membership, on_refusal=None):
        """on_refusal(what): is called for what is found out only in train(), instead of an error."""
        what = _obstacle(trainer)
        if what:
            _refuse(what)
        self._on_refusal = on_refusal
        self._trainer, self._membership = trainer, membership
        self._place = (membership.rank, membership.size)
        self._is_newcomer = membership.is_newcomer
        self._parts = self._seeds = self._memory = self._reader = None  # until the loop begins
        self._position = None
        self._epoch = self._done = 0  # the epoch under way, and its steps that are done
        self._next = self._micro = 0  # the step of the epoch, and its batch, that is begun next
        self._epochs_begun = 0
        self._is_in_epoch = self._updated = False
        self._control = None          # a peer's, until the newcomer is in its epoch
        self._table = self._new_table = None  # of each rank: the losses, and the operations, since the last log
        self._grad_norm = self._rate = None   # of the last update
        self._since = 0.0
        self._was_given = False  # a state, in the recovery under way
        self.recoveries = []
        self._originals, self._replaced = {}, []
        self._unkept = None  # of a script that hasn't asked to be kept
        self._wrap(trainer, "train", self._train)
        for name in _PARTS:
            self._wrap(trainer, name, getattr(self, "_on" + (name if name.startswith("_") else "_" + name)))
        self._wrap(trainer.callback_handler, "on_train_begin", self._on_train_begin)
        self._wrap(trainer.callback_handler, "on_epoch_begin", self._on_epoch_begin)

    def _wrap(self, owner, name, wrapper):
        self._originals[name] = getattr(owner, name)
        self._replaced.append((owner, name, {key: value for key, value in vars(owner).items() if key == name}))
        setattr(owner, name, wrapper)

    def detach(self):
        """The Trainer's loop is its own again, or the script's, which may have put functions of its own into it."""
        while self._replaced:
            owner, name, own = self._replaced.pop()
            vars(owner).pop(name, None)
            vars(owner).update(own)

    def train(self, original, *arguments, **named):
        """The Trainer's train(), where one of a child is under way. original: the Trainer's own."""
        self._originals["train"] = original
        return self._train(*arguments, **named)

    def _call(self, name, *arguments, **named):
        return self._originals[name](*arguments, **named)

    def _bound(self, name, arguments, named):
        return dict(inspect.signature(self._originals[name]).bind(*arguments, **named).arguments)

    # ---- the beginning

    def _train(self, resume_from_checkpoint=None, trial=None, *arguments, **named):
        if self._parts is not None:
            raise RuntimeError("elastic.attach() is for one train() in a process")
        if trial is not None:
            _refuse("a search of hyperparameters")
        if self._is_newcomer:
            resume_from_checkpoint = None  # its state comes from a peer; the newest checkpoint may be a torn one
        return self._call("train", resume_from_checkpoint, trial, *arguments, **named)

    def _on_init_training_state(self, *arguments, **named):
        result = self._call("_init_training_state", *arguments, **named)
        self._epoch = result[0]
        self._done = result[1] // self._trainer.args.gradient_accumulation_steps
        return result

    def _on_train_begin(self, *arguments, **named):
        control = self._call("on_train_begin", *arguments, **named)
        self._trainer.control = control
        self._begin()
        return control

    def _begin(self):
        trainer = self._trainer
        loader = trainer.callback_handler.train_dataloader
        parts, what = self._made_parts(why_not(loader))
        if what:
            self.detach()
            self._on_refusal(what)
            return
        if Session._exists:
            raise RuntimeError("a process has one elastic.Session, or one Trainer that elastic.attach() keeps")
        Session._exists = True
        self._parts = parts
        for optimizer in self._parts.optimizers:
            optimizer.register_step_pre_hook(self._before_update)
            optimizer.register_step_post_hook(self._after_update)
        self._reader = Reader(loader, self._seed_data)
        self._memory = Memory(trainer)
        trainer.args.ignore_data_skip = False  # the loop has read it; an epoch is entered again at its place
        self._table, self._logged = [self._own()] * self._membership.size, trainer._globalstep_last_logged
        if self._is_newcomer:
            self._since = time.monotonic()
            self._recover()
            return
        names = [f"ddprun/seed{rank}" for rank in range(self._membership.size)]
        told = groups.store.gather(names[self._membership.rank], str(Seeds.own()).encode(), names)
        self._seeds = Seeds(int(one) for one in told)
        self._move(_AFTER if trainer.args.eval_on_start else _OVER)
        self._look()
        self._membership.same_place = True
        self._membership.watch(self._parts.models)

    def _made_parts(self, what):
        """(the Parts, ""), or (None, what isn't kept), the same on all ranks. what: has been found already."""
        trainer, parts = self._trainer, None
        if self._on_refusal is None:
            if what:
                _refuse(what)
            return Parts(trainer.model_wrapped, trainer.optimizer, trainer.lr_scheduler, None, None, None), ""
        try:
            parts = Parts(trainer.model_wrapped, trainer.optimizer, trainer.lr_scheduler, None, None, None)
        except TypeError as error:
            what = what or f"this Trainer ({error})"
        if self._is_newcomer:
            if what:
                raise SystemExit(f"ddprun.elastic: {what}, which its peers have not")
            return parts, ""
        names = [f"ddprun/trainer{rank}" for rank in range(self._membership.size)]
        told = groups.store.gather(names[self._membership.rank], what.encode(), names)
        what = next((one.decode() for one in told if one), "")
        if what and parts is not None:
            parts.give_back_buffers()
        return parts, what

    def _look(self):
        """Has the script's own objects compared with what they are now, when a worker is lost."""
        if self._on_refusal is not None:
            trainer, kept = self._trainer, self._trainer.callback_handler.callbacks
            others = [one for one in kept if not hasattr(one, "from_state")]  # those that have it keep what they change
            found = {**unkept.modules_of(self._parts.models[0].module),
                     **{type(one).__name__: (one, frozenset()) for one in others if not unkept.is_frameworks(type(one))},
                     "the Trainer": (trainer, frozenset(vars(trainer).keys() - set(_OF_SCRIPTS)))}
            self._unkept = unkept.Watch(found, [*kept, *self._parts.models])
            self._membership.why_not = self._why_it_ends

    def _why_it_ends(self):
        """Why this process can't go on after a loss; "" = it can."""
        changed = [] if self._unkept is None else self._unkept.changed()
        changed = [one for one in changed if not self._memory.keeps(one.replace(" of the Trainer", ""))]
        return f"a new worker can't be given {', '.join(changed[:3])}" if changed else ""

    def _on_evaluate(self, *arguments, **named):
        trainer = self._trainer
        while self._parts is not None and self._position == (trainer._initial_global_step, _AFTER):  # eval_on_start
            try:
                self._seed(_BETWEEN)
                metrics = self._call("_evaluate", *arguments, **named)
                self._move(_OVER)
                return metrics
            except RuntimeError as error:
                self._judge(error)
            self._recover()
        if self._parts is not None and not self._is_in_epoch:
            return {}  # the others have done it
        return self._call("_evaluate", *arguments, **named)

    # ---- epochs

    def _on_epoch_begin(self, args, state, control, **named):
        self._epochs_begun += 1
        if self._is_newcomer and self._epochs_begun <= self._epoch:
            return control
        return self._call("on_epoch_begin", args, state, control, **named)

    def _on_run_epoch(self, *arguments, **named):
        named = self._bound("_run_epoch", arguments, named)
        epoch = named["epoch"]
        if epoch < self._epoch:  # a newcomer on its way
            if epoch == self._epoch - 1 and self._position[1] == _OVER:
                self._take_control()
            return
        self._is_in_epoch = True
        self._take_control()
        self._memory.keep()
        while True:
            try:
                if self._position[1] == _AFTER:
                    self._after_again(named)
                self._enter(named)
                break
            except RuntimeError as error:
                self._judge(error)
            self._recover()
            if self._epoch > epoch:
                return
        self._epoch, self._done = epoch + 1, 0
        self._move(_OVER)

    def _enter(self, named):
        """The epoch from the next step on."""
        control, batches = self._trainer.control, self._trainer.args.gradient_accumulation_steps
        self._next = self._done
        if self._position[1] == _EPOCH and (control.should_epoch_stop or control.should_training_stop):
            self._next = named["num_update_steps_per_epoch"]  # just its end
        self._call("_run_epoch", **{
            **named, "epochs_trained": named["epoch"], "resume_from_checkpoint": _RESUMED,
            "steps_trained_in_current_epoch": self._next * batches})

    def _on_load_rng_state(self, checkpoint):
        if checkpoint != _RESUMED:
            self._call("_load_rng_state", checkpoint)

    def _on_finalize_training(self, *arguments, **named):
        while True:
            try:
                self._seed(_BETWEEN)
                result = self._call("_finalize_training", *arguments, **named)
                dist.barrier()  # nobody leaves while another may have to do it again
                self._membership.why_not = lambda: "a worker was lost after train()"
                return result
            except RuntimeError as error:
                self._judge(error)
            self._recover()

    # ---- a step

    def _on_get_batch_samples(self, epoch_iterator, num_batches, *arguments, **named):
        if self._parts is None:
            return self._call("get_batch_samples", epoch_iterator, num_batches, *arguments, **named)
        source = self._reader.step(self._epoch, self._next * self._trainer.args.gradient_accumulation_steps)
        self._next, self._micro = self._next + 1, 0
        return self._call("get_batch_samples", source, num_batches, *arguments, **named)

    def _on_training_step(self, *arguments, **named):
        if self._parts is not None:
            self._seed(seeds.TRAINING, self._micro)
            self._micro += 1
            progress.mark(progress.STEP, self._trainer.state.global_step + 1)
        return self._call("training_step", *arguments, **named)

    def _before_update(self, optimizer, *_):
        self._check_given_up()
        self._parts.before_update(optimizer)
        self._share()

    def _share(self):
        table = torch.zeros(self._membership.size, 2, dtype=torch.float64)
        table[self._membership.rank] = torch.tensor(self._own(), dtype=torch.float64)
        dist.all_reduce(table)
        self._check_given_up()
        self._new_table = table.tolist()

    def _after_update(self, *_):
        self._updated = True

    @staticmethod
    def _check_given_up():
        if groups.gave_up():
            raise PeerError("a collective of a backward pass was given up")

    def _own(self):
        trainer = self._trainer
        return [float(trainer._tr_loss), float(trainer.current_flos)]

    # ---- after a step

    def _on_maybe_log_save_evaluate(self, *arguments, **named):
        named = self._bound("_maybe_log_save_evaluate", arguments, named)
        trainer, control = self._trainer, self._trainer.control
        if trainer.state.global_step == self._position[0]:  # at the epoch's end
            if named["grad_norm"] is None:
                named.update(grad_norm=self._grad_norm, learning_rate=self._rate)
            self._seed(_BETWEEN)
            return self._call("_maybe_log_save_evaluate", **named)
        if self._unkept is None:
            self._look()  # a newcomer's first step makes what the others' first one has made
        if not self._updated:
            self._share()  # the scaler has left out the update
        self._updated, self._done, self._table = False, self._next, self._new_table
        self._grad_norm, self._rate = named["grad_norm"], named.get("learning_rate")
        if control.should_log or control.should_evaluate or control.should_save:
            self._move(_AFTER)
        return self._after(named)

    def _after(self, named):
        self._seed(_BETWEEN)
        result = self._call("_maybe_log_save_evaluate", **named)
        self._move(_EPOCH)
        return result

    def _after_again(self, epoch):
        named = {name: epoch[name] for name in ("model", "trial", "epoch", "ignore_keys_for_eval", "start_time")}
        self._after({**named, "tr_loss": self._trainer._tr_loss, "grad_norm": self._grad_norm, "learning_rate": self._rate})

    def _on_get_eval_dataloader(self, *arguments, **named):
        loader = self._call("get_eval_dataloader", *arguments, **named)
        if self._parts is not None:
            seed_generators(loader, self._seed_data(self._trainer.state.global_step, 0, ORDER))
        return loader

    def _on_save_checkpoint(self, *arguments, **named):
        result = self._call("_save_checkpoint", *arguments, **named)
        dist.barrier()  # nobody goes on before it is whole: if its writer is lost, all of them save again
        return result

    # ---- positions, seeds

    def _move(self, phase):
        """Comes to a position, from where all that follows can be done again."""
        trainer, own = self._trainer, self._own()
        self._position = (trainer.state.global_step, phase)
        # A log or a checkpoint begins these sums anew, on all ranks.
        self._table = [[loss if trainer._globalstep_last_logged == self._logged else own[0], flos if own[1] else 0.0]
                       for loss, flos in self._table]
        self._logged = trainer._globalstep_last_logged
        self._keep()

    def _keep(self):
        self._memory.keep()
        self._parts.begin()

    def _seed(self, purpose, batch=0):
        self._seeds.set(self._membership.rank, self._trainer.state.global_step, batch, purpose)

    def _seed_data(self, epoch, batch, purpose):
        return self._seeds.set(0 if purpose == ORDER else self._membership.rank, epoch, batch, purpose)

    def _take_control(self):
        if self._control is not None:
            self._memory.put_control(self._control)
            self._control = None

    # ---- recovery

    def _judge(self, error):
        """Raises an error that doesn't come from a peer's loss."""
        self._since = self._since or time.monotonic()
        if not self._membership.caused(error):
            raise error
        if self._updated:
            raise RuntimeError("a peer was lost in a collective of a callback's own, after an update: elastic.attach() can't repeat it; "
                               "callbacks may have collectives in on_step_begin, on_log, on_evaluate and on_save") from error

    def _recover(self):
        """Meets the others, and goes back to the position of the one that is furthest."""
        since, self._was_given = self._since or time.monotonic(), False
        if self._seeds is not None:
            self._memory.put_back()
            self._parts.put_back()
        self._parts.drop_gradients()
        while True:
            try:
                was_healed = self._meet()
                break
            except RuntimeError as error:
                self._judge(error)
        self._since = 0.0
        self.recoveries.append(Recovery(self._membership.generation, self._position[0], time.monotonic() - since, was_healed))
        say_recovery(self._membership, self.recoveries[-1])

    def _own_position(self):
        return None if self._seeds is None else self._position

    def _offered(self):
        return {**self._state(), "layouts": self._parts.layouts(), "seeds": self._seeds.table}, False

    def _take_offered(self, state, position):
        if len(state["table"]) != self._membership.size:
            return  # all processes are restarted
        self._parts.know_layouts(state["layouts"])
        self._take(state, position)
        if self._seeds is None:
            self._seeds = Seeds(state["seeds"])
            self._keep()

    def _note(self):
        note = {"seed": Seeds.own(), "position": self._own_position(), "layouts": None, "seeds": []}
        if self._seeds is not None:
            note.update(layouts=self._parts.layouts(), seeds=self._seeds.table)
        return pickle.dumps(note)

    def _meet(self):
        """Returns whether this rank was given a state."""
        notes = [pickle.loads(note) for note in handover.exchange(
            self._membership, self._own_position, self._offered, self._take_offered, self._note)]
        rank = self._membership.rank
        if (rank, self._membership.size) != self._place:
            raise SystemExit(f"ddprun.elastic: rank {self._place[0]} of {self._place[1]} is {rank} of {self._membership.size} now, and "
                             "the Trainer's steps depend on it: all processes are restarted")
        newest = max((note["position"] for note in notes if note["position"] is not None), default=None)
        if newest is None:
            raise SystemExit("ddprun.elastic: no rank has the training's state any more: all processes are restarted")
        leader = next(number for number, note in enumerate(notes) if note["position"] == newest)
        self._parts.reform(notes[leader]["layouts"] or [None])
        if any(note["position"] != newest for note in notes):
            state = broadcast(dist.group.WORLD, self._state() if rank == leader else None, leader, rank)
            if self._own_position() != newest:
                self._take(state, newest)
        if self._seeds is None:
            self._seeds = Seeds(notes[leader]["seeds"])
            self._keep()
        return self._was_given

    def _state(self):
        # The sum of operations is a whole number where it began anew, and tensors of it are gathered.
        return {"parts": self._parts.state(), "memory": self._memory.of_all(), "table": self._table,
                "flos": type(self._trainer.current_flos), "place": (self._epoch, self._done), "update": (self._grad_norm, self._rate)}

    def _take(self, state, position):
        trainer, self._was_given = self._trainer, True
        self._parts.load(state["parts"])
        self._memory.take(state["memory"])
        loss, flos = state["table"][self._membership.rank]
        trainer.current_flos = state["flos"](flos)
        trainer._tr_loss = torch.tensor(loss, dtype=trainer._tr_loss.dtype, device=trainer._tr_loss.device)
        self._position, self._table, self._logged = position, state["table"], trainer._globalstep_last_logged
        self._epoch, self._done = state["place"]
        self._grad_norm, self._rate = state["update"]
        if self._seeds is None:
            self._control = state["memory"]["control"]
            return
        self._memory.put_control(state["memory"]["control"])
        if not self._reader.has(self._epoch, self._done * trainer.args.gradient_accumulation_steps):
            self._memory.forget_loaders()
        self._keep()


def attach(trainer, membership, on_refusal=None):
    return Attached(trainer, membership, on_refusal)
