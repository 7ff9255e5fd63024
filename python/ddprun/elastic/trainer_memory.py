"""Copies of what the loop of Hugging Face's Trainer changes, apart from model, optimizer and scheduler.

The Trainer keeps its counters in three places: TrainerState and TrainerControl, attributes of its own (the losses since the last
log), and callbacks that export their state. Children of the Trainer add attributes: TRL's collect metrics in dictionaries. So an
attribute counts as one of the loop's if it holds plain data: numbers, texts, small tensors, and containers of these.

A copy is made at each step, so it must be cheap: log_history, which grows for ever, is only cut to its length of before.
"""

import collections
import pickle

import torch

_SCALARS = (int, float, complex, str, bytes, bool, type(None))
_SEQUENCES = (list, tuple, set, collections.deque)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
# Larger values at the beginning are data of the program's, not counters.
_LARGEST = 4096
# A rank's own: its part of the losses and operations since the last log.
OWN = ("_tr_loss", "current_flos")
# The loop sets these before it asks callbacks whether it may begin, so they count as changed from the beginning.
_BEFORE = ("_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "_initial_num_input_tokens_seen")
_ROLES = ("is_local_process_zero", "is_world_process_zero")


def _size(value):
    """How many elements a value of plain data has; infinite if it has something else."""
    if isinstance(value, _SCALARS):
        return 1
    if type(value) is torch.Tensor:
        return value.numel() if not value.requires_grad else float("inf")
    if type(value) in _SEQUENCES:
        items = value
    elif type(value) in _MAPPINGS:
        items = value.values()
    else:
        return float("inf")
    if len(items) > _LARGEST:
        return float("inf")
    return 1 + sum(map(_size, items))


def _frozen(value):
    """A value that nobody changes any more."""
    return value if isinstance(value, _SCALARS) else pickle.dumps(value)


def _thawed(value, was_frozen):
    return pickle.loads(value) if was_frozen else value


class Memory:
    """The copy of one Trainer. The Trainer's thread."""

    def __init__(self, trainer):
        self._trainer = trainer
        self._strange = {name for name, value in vars(trainer).items() if _size(value) > _LARGEST}
        self._first = {}
        self._first = self._attributes()
        self.keep()

    def keep(self):
        """Replaces the copy by one of now."""
        state, references = self._trainer.state, self._gradient_state()
        self._kept = {
            "attributes": self._attributes(),
            "state": {name: value for name, value in vars(state).items() if name not in ("log_history", "stateful_callbacks")},
            "stateful": pickle.dumps(state.stateful_callbacks),
            "log": len(state.log_history),
            "training": self._trainer.model_wrapped.training,  # an evaluation that breaks leaves the model in its mode
            "control": dict(vars(self._trainer.control)),
            "callbacks": pickle.dumps([one.state() for one in self._callbacks()])}
        self._loaders = list(references.dataloader_references) if references is not None else []

    def keeps(self, name):
        """Whether an attribute of the Trainer's is one of the loop's."""
        return name in vars(self._trainer) and name not in self._strange and _size(vars(self._trainer)[name]) < float("inf")

    def put_back(self):
        """Restores the Trainer as it was when the copy was made."""
        for name in set(self._attributes()) - set(self._kept["attributes"]):
            del vars(self._trainer)[name]
        self._put(self._kept)
        self.put_control(self._kept["control"])
        del self._trainer.state.log_history[self._kept["log"]:]
        references = self._gradient_state()
        if references is not None:
            references.dataloader_references = self._loaders  # without those of an evaluation that was broken off

    def forget_loaders(self):
        """No loader is being read."""
        self._loaders = [None]

    def of_all(self):
        """The copy's part that is the same on all ranks."""
        attributes = {name: value for name, value in self._kept["attributes"].items()
                      if name not in OWN and (name in _BEFORE or self._first.get(name, self) != value)}
        state = {name: value for name, value in self._kept["state"].items() if name not in _ROLES}
        return {**self._kept, "attributes": attributes, "state": state,
                "history": self._trainer.state.log_history[:self._kept["log"]]}

    def take(self, given):
        """Takes a peer's of_all(), except for its control."""
        self._put(given)
        self._trainer.state.log_history[:] = given["history"]

    def put_control(self, control):
        vars(self._trainer.control).update(control)

    def _put(self, kept):
        trainer = self._trainer
        for name, (was_frozen, value) in kept["attributes"].items():
            vars(trainer)[name] = _thawed(value, was_frozen)
        vars(trainer.state).update(kept["state"])
        trainer.model_wrapped.train(kept["training"])
        trainer.state.stateful_callbacks = pickle.loads(kept["stateful"])
        for callback, state in zip(self._callbacks(), pickle.loads(kept["callbacks"])):
            vars(callback).update(state["attributes"])

    def _attributes(self):
        """{name: (whether the value is frozen, the value)}"""
        found = {}
        for name, value in vars(self._trainer).items():
            if name not in self._strange and (isinstance(value, _SCALARS) or _size(value) < float("inf")):
                frozen = _frozen(value)
                found[name] = (frozen is not value, frozen)
        return found

    def _callbacks(self):
        """The callbacks that export their state; the Trainer's control isn't among the handler's."""
        return [one for one in self._trainer.callback_handler.callbacks if hasattr(one, "state") and hasattr(one, "from_state")]

    def _gradient_state(self):
        return getattr(self._trainer.accelerator, "gradient_state", None)
