"""What a Trainer of Lightning's keeps between two batches, beside the model and the optimizer: the loops' counters, callbacks'
states, logged values.

The counters, and the states that callbacks save in checkpoints, are equal on all ranks. Logged values aren't: until the epoch
ends each rank has the sums of its own batches, which would be lost with it. So the ranks exchange these, as plain numbers, before
each update (`own_values`): a rank that has done an update knows all ranks' values before it.
"""

import importlib
import sys

import torch

from ddprun.elastic import unkept
from ddprun.elastic.transfer import copied

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def package_of(thing):
    """The package of Lightning's that an object's class, or one of its bases, is from."""
    for kind in type(thing).__mro__:
        for package in PACKAGES:
            if kind.__module__.startswith(f"{package}."):
                return package
    raise TypeError(f"{type(thing).__name__} isn't of Lightning's")


def module(package, name):
    return importlib.import_module(f"{package}.{name}")


def missing_parts(package):
    """The names used here that this version of Lightning lacks; [] = none."""
    loops = module(package, "loops")
    wanted = [(loops._FitLoop, "on_advance_start"), (loops._FitLoop, "setup_data"), (loops._TrainingEpochLoop, "advance"),
              (loops._TrainingEpochLoop, "on_run_start"),
              (module(package, "loops.optimization.automatic")._AutomaticOptimization, "run"),
              (module(package, "trainer.connectors.checkpoint_connector")._CheckpointConnector, "resume_start"),
              (module(package, "trainer.connectors.logger_connector.result")._ResultCollection, "log"),
              (module(package, "strategies.strategy"), "_ForwardRedirection")]
    return [f"{owner.__name__}.{name}" for owner, name in wanted if not hasattr(owner, name)]


def trackers(trainer):
    """The counters of the loops: {name: _Progress}."""
    loop = trainer.fit_loop.epoch_loop
    optimizer = loop.automatic_optimization.optim_progress.optimizer
    return {"epoch": trainer.fit_loop.epoch_progress, "batch": loop.batch_progress, "scheduler": loop.scheduler_progress,
            "step": optimizer.step, "zero_grad": optimizer.zero_grad, "validation": loop.val_loop.batch_progress}


def counters(tracker):
    return dict(vars(tracker.total)), dict(vars(tracker.current)), getattr(tracker, "is_last_batch", None)


def set_counters(tracker, values):
    vars(tracker.total).update(values[0])
    vars(tracker.current).update(values[1])
    if values[2] is not None:
        tracker.is_last_batch = values[2]


def _plain(value):
    """A tensor of one value as (number, dtype)."""
    return (value.item(), value.dtype) if isinstance(value, torch.Tensor) else value


def _as_it_was(value):
    return torch.tensor(value[0], dtype=value[1]) if isinstance(value, tuple) else value


def mixed(then, own, leader):
    """What a rank had at a time when only a peer's values are known: own values that it had before, where the peer's haven't changed
    since.

    then: the peer's values at that time. own, leader: the rank's and the peer's before it; None = there was no such time.
    """
    if own is None:
        return then

    def pick(mine, old, new):
        return {key: mine[key] if key in mine and repr(old.get(key)) == repr(value) else value for key, value in new.items()}
    return {"results": pick(own["results"], leader["results"], then["results"]),
            "metrics": pick(own["metrics"], leader["metrics"], then["metrics"]),
            "shown": [pick(*three) for three in zip(own["shown"], leader["shown"], then["shown"])]}


class State:
    """The parts of one Trainer, which has a model and an optimizer by now."""

    def __init__(self, trainer, refuse):
        """refuse(what, text): is called for a metric that can't be kept."""
        self._trainer, self._refuse = trainer, refuse
        base = module(package_of(trainer), "callbacks").Callback
        self._checkpoint = module(package_of(trainer), "callbacks").ModelCheckpoint
        self._callbacks = [one for one in trainer.callbacks
                           if type(one).state_dict is not base.state_dict or isinstance(one, self._checkpoint)]
        metrics = sys.modules.get("torchmetrics")
        self.metrics = {name: one for name, one in trainer.lightning_module.named_modules()
                        if metrics is not None and isinstance(one, metrics.Metric)}

    def own_objects(self):
        """What a training changes, for unkept.Watch: (objects of the script's, objects that are kept). Callbacks that export a state
        say that they keep what they change."""
        trainer, package = self._trainer, package_of(self._trainer)
        base = module(package, "callbacks").Callback
        found = unkept.modules_of(trainer.lightning_module)
        found.pop("the model", None)
        found["the LightningModule"] = trainer.lightning_module, {*vars(importlib.import_module(package).LightningModule()), "forward"}
        for one in trainer.callbacks:
            if type(one).state_dict is base.state_dict and not type(one).__module__.startswith(f"{package}."):
                found[type(one).__name__] = one, set()
        return found, trainer.callbacks

    # ---- equal on all ranks

    def counters(self):
        return {name: counters(tracker) for name, tracker in trackers(self._trainer).items()}

    def shared(self, is_kept):
        """The state at the beginning of a batch. is_kept: callbacks, too, may be given to a new worker."""
        trainer = self._trainer
        return {"counters": self.counters(), "callbacks": [self._state_of(one) for one in self._callbacks if is_kept],
                "should_stop": trainer.should_stop, "batches_that_stepped": trainer.fit_loop.epoch_loop._batches_that_stepped,
                "logging": self._logging(), "restarting": [loop._restarting for loop in self._loops()]}

    def set_shared(self, state):
        trainer = self._trainer
        for name, tracker in trackers(trainer).items():
            if name != "epoch":
                set_counters(tracker, state["counters"][name])
        for one, values in zip(self._callbacks, state["callbacks"]):
            if isinstance(one, self._checkpoint):
                vars(one).update(copied(values))
            else:
                one.load_state_dict(copied(values))
        trainer.should_stop = state["should_stop"]
        trainer.fit_loop.epoch_loop._batches_that_stepped = state["batches_that_stepped"]
        self._set_logging(state["logging"])
        for loop, is_restarting in zip(self._loops(), state["restarting"]):
            loop._restarting = is_restarting  # in the epoch in which a checkpoint was resumed some things aren't done

    def _loops(self):
        fit = self._trainer.fit_loop
        return fit, fit.epoch_loop, fit.epoch_loop.val_loop

    def _logging(self):
        """On what it depends whether logging a value resets those of the last epoch."""
        connector = self._trainer._logger_connector
        return connector._first_loop_iter, connector._current_fx

    def _set_logging(self, values):
        connector = self._trainer._logger_connector
        connector._first_loop_iter, connector._current_fx = values

    def _state_of(self, callback):
        if not isinstance(callback, self._checkpoint):
            return copied(callback.state_dict())
        # All plain values: state_dict() lacks the number of the last step that was saved.
        return {name: copied(value) for name, value in vars(callback).items()
                if isinstance(value, (int, float, str, torch.Tensor, dict, type(None)))}

    # ---- this rank's own

    def own(self):
        """References to logged values, which Lightning replaces, and copies of torchmetrics' states. plain() makes values of them."""
        connector = self._trainer._logger_connector
        return {"results": {key: (one._forward_cache, one.value, getattr(one, "cumulated_batch_size", None), one.has_reset,
                                  one._update_count) if one.is_tensor else None for key, one in self._results().items()},
                "metrics": {name: self._tensors(name, one) for name, one in self.metrics.items() if one._update_count},
                "shown": [dict(connector._callback_metrics), dict(connector._logged_metrics),
                          dict(connector._progress_bar_metrics)]}

    @staticmethod
    def plain(own):
        """Logged values as numbers, which a message is small with."""
        return {"results": {key: None if values is None else [*map(_plain, values[:3]), *values[3:]]
                            for key, values in own["results"].items()},
                "metrics": own["metrics"],
                "shown": [{name: _plain(value) for name, value in shown.items()} for shown in own["shown"]]}

    def logged_late(self, before):
        """The names and hooks of values of the epoch that were added to since own() has returned `before`. Call it as the next step
        begins."""
        return [(one.meta.name, one.meta.fx) for key, one in self._results().items()
                if one.is_tensor and one.meta.on_epoch and not one.has_reset and one.meta.fx != "on_train_epoch_start"
                and (key not in before["results"] or one.value is not before["results"][key][1])]

    def set_own_values(self, values, kinds):
        """kinds: a peer's kinds()."""
        results = self._results()
        for key, numbers in values["results"].items():
            if key not in results:
                results[key] = self._result(kinds[key])
            self._set_numbers(results[key], numbers)
        for name, (count, tensors) in values["metrics"].items():
            metric = self.metrics[name]
            for key, tensor in tensors.items():
                setattr(metric, key, tensor.clone())
            metric._update_count, metric._computed = count, None
        connector = self._trainer._logger_connector
        connector._callback_metrics, connector._logged_metrics, connector._progress_bar_metrics = (
            {name: _as_it_was(value) for name, value in shown.items()} for shown in values["shown"])

    def kinds(self):
        """What a peer needs to make the results that it lacks."""
        names = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx", "dataloader_idx",
                 "metric_attribute")
        return {key: {**{name: getattr(one.meta, name) for name in names}, "reduce_fx": one.meta.reduce_fx.__name__,
                      "is_tensor": one.is_tensor, "should": one.meta.sync.should, "rank_zero_only": one.meta.sync.rank_zero_only}
                for key, one in self._results().items()}

    def kept(self):
        """What a training step of this rank changes of its own, to be put back before it is done again."""
        return ({key: (getattr(one, "value", None), getattr(one, "cumulated_batch_size", None), one._forward_cache, one._computed,
                       one.has_reset, one._update_count) for key, one in self._results().items()},
                {name: (one._update_count, {key: copied(getattr(one, key)) for key in one._defaults})
                 for name, one in self.metrics.items()},
                counters(trackers(self._trainer)["zero_grad"]), self._logging())

    def put_back(self, kept):
        results = self._results()
        for key in [key for key in results if key not in kept[0]]:
            del results[key]
        for key, (value, size, cache, computed, has_reset, count) in kept[0].items():
            one = results[key]
            one.value, one._forward_cache, one._computed, one.has_reset, one._update_count = value, cache, computed, has_reset, count
            if size is not None:
                one.cumulated_batch_size = size
        for name, (count, states) in kept[1].items():
            metric = self.metrics[name]
            for key, value in states.items():
                setattr(metric, key, copied(value))
            metric._update_count, metric._computed = count, None
        set_counters(trackers(self._trainer)["zero_grad"], kept[2])
        self._set_logging(kept[3])

    # ---- parts

    def _results(self):
        return self._trainer.fit_loop.epoch_loop._results

    def _set_numbers(self, one, numbers):
        if numbers is None:
            return
        cache, value, size = map(_as_it_was, numbers[:3])
        one._forward_cache, one.value, one._computed = cache, value, None
        one.has_reset, one._update_count = numbers[3:]
        if size is not None:
            one.cumulated_batch_size = size

    def _result(self, kind):
        """A result that this rank has not logged so far."""
        result = module(package_of(self._trainer), "trainer.connectors.logger_connector.result")
        kind = dict(kind)
        is_tensor, should, rank_zero_only = (kind.pop(name) for name in ("is_tensor", "should", "rank_zero_only"))
        meta = result._Metadata(**{**kind, "reduce_fx": getattr(torch, kind["reduce_fx"])})
        meta.sync = result._Sync(_should=should, fn=self._trainer.strategy.reduce, rank_zero_only=rank_zero_only)
        made = result._ResultMetric(meta, is_tensor)
        if not is_tensor:
            made.value = self.metrics[kind["metric_attribute"]]
        return made

    def _tensors(self, name, metric):
        states = {key: getattr(metric, key) for key in metric._defaults}
        for key, value in states.items():
            if isinstance(value, list) and value:
                what = f"the metric {name}, a {type(metric).__name__} that training_step updates"
                self._refuse(what, f"{what}: its state {key} grows with each batch; use one of a fixed size, or log a value of each batch")
        return metric._update_count, {key: value.clone() for key, value in states.items() if isinstance(value, torch.Tensor)}
