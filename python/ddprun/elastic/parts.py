"""What a Session keeps through failures: models, optimizers, schedulers, scaler, the place in the data."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddprun.data import ElasticSampler
from ddprun.elastic import reducer
from ddprun.elastic.buffers import Buffers
from ddprun.elastic.transfer import copied, load_into, state_of, version_of


def several(value):
    """None, one thing or several, as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def unwrapped(optimizer):
    """The optimizer of torch's in a wrapper, such as Accelerate's, which doesn't call hooks."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


def checked_sampler(sampler):
    """The sampler, if it knows the place in the data; TypeError if it doesn't."""
    return _checked(ElasticSampler, [sampler], (), "elastic.Session needs sampler=, an ElasticSampler (docs/DATA.md), which knows the "
                    "place in the data")[0]


def _checked(kind, things, methods, what):
    for thing in things:
        if not (isinstance(thing, kind) if kind else all(hasattr(thing, method) for method in methods)):
            raise TypeError(f"{what}, not {type(thing).__name__}")
    return things


def options_of(optimizer):
    """Copies of all in the optimizer's groups but parameters: learning rates."""
    return [copied({key: value for key, value in group.items() if key != "params"}) for group in optimizer.param_groups]


def put_options(optimizer, options):
    for group, kept in zip(optimizer.param_groups, copied(options)):
        for key, value in kept.items():
            own = group.get(key)
            if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
                own.copy_(value)  # compiled updates have it
            else:
                group[key] = value


class Parts:
    """The parts of one rank. A *step* is from one update of the parameters to the next; the methods are about the one under way."""

    def __init__(self, model, optimizer, scheduler, scaler, sampler, extra):
        """sampler: None = the caller keeps the place in the data."""
        self.models = several(model)
        self._check_models()
        self.optimizers = _checked(torch.optim.Optimizer, [unwrapped(one) for one in several(optimizer)], (), "elastic.Session steps with "
                                   "optimizers of torch's")
        for one in self.optimizers:
            if isinstance(one, torch.optim.LBFGS):
                raise TypeError("elastic.Session can't repeat a step of LBFGS, which changes parameters many times within one step: "
                                "train it without a Session, with restarts from checkpoints")
        if not self.models or not self.optimizers:
            raise TypeError("elastic.Session needs a model and an optimizer")
        states = ("state_dict", "load_state_dict")
        self.schedulers = _checked(None, several(scheduler), states, "a scheduler has state_dict() and load_state_dict()")
        self.scalers = _checked(None, several(scaler), states, "a scaler has state_dict() and load_state_dict()")
        self.sampler = sampler
        self.extra = dict(extra or {})
        _checked(None, self.extra.values(), states, "what is given as extra has state_dict() and load_state_dict()")
        self._buffers = [Buffers(self._bare(model), getattr(model, "parameters_to_ignore", ())) for model in self.models]
        self._known_models = {}  # those of _models_of()
        self._waiting = set()  # the models whose update in this step is still to come, by number, if there are several optimizers
        self._layouts = [None] * len(self.models)
        self._wrapped = [reducer.trained(self._bare(model)) for model in self.models]
        self._unsettled = list(self.models)
        self._small = None  # what begin() kept
        self._place = None  # the sampler's state as the step under way began
        self._take_buffers()

    def _check_models(self):
        _checked(DistributedDataParallel, self.models, (), "elastic.Session keeps models that DistributedDataParallel wraps "
                 "(torch.compile goes inside of it), or fully_shard()")
        for hook, state in (one for model in self.models for one in getattr(model, "_comm_hooks", [])):
            if state is not None and not isinstance(state, dist.ProcessGroup):
                raise TypeError(f"elastic.Session can't give a new worker the state of the communication hook {hook.__name__}: use a hook "
                                "without a state, or train without a Session, with restarts from checkpoints")

    def _take_buffers(self):
        # Buffers are made equal before each update instead of at the next forward pass, so that no rank's buffers are lost with
        # it.
        self._has_own_buffers = [bool(model.broadcast_buffers) for model in self.models]
        for model in self.models:
            model.broadcast_buffers = False

    def give_back_buffers(self):
        """DDP makes them equal by itself, as before."""
        for model, is_due in zip(self.models, self._has_own_buffers):
            model.broadcast_buffers = is_due

    @staticmethod
    def _bare(model):
        return model.module

    def begin(self):
        """Keeps copies of what the step's passes, and the loop's body, change."""
        self._waiting = set().union(*map(self._models_of, self.optimizers)) if len(self.optimizers) > 1 else set()
        for buffers in self._buffers:
            buffers.keep()
        self._small = {
            "groups": [options_of(optimizer) for optimizer in self.optimizers],
            "stateful": [copied(one.state_dict()) for one in self.stateful()]}
        if self._place is None and self.sampler is not None:
            self._place = self.sampler.state_dict()

    def changes(self):
        """What differs when parameters or the place in the data have been changed."""
        return self.sampler.deals, [version_of(getattr(one, "_local_tensor", one)) for model in self.models for one in model.parameters()]

    def know_loads(self, membership):
        """The script has loaded a state of its own after the Session was made, on all ranks."""

    def put_back(self):
        """Restores the state at the step's beginning, except what updates change: parameters and the optimizers' state."""
        if self._small is None:
            return
        for buffers in self._buffers:
            buffers.put(buffers.kept())
        self._put_small(self._small)
        self.begin_scaling()

    def begin_scaling(self):
        """Has scalers forget that they have unscaled gradients in this step."""
        for scaler in self.scalers:
            getattr(scaler, "_per_optimizer_states", {}).clear()

    def begin_again(self):
        """Begins the step under way anew, with the same batches; begin() follows."""
        self._small = None

    def end(self):
        """Ends the step under way. Returns the sampler's state at its beginning; None = no step was begun."""
        place, self._small, self._place = self._place, None, None
        return place

    def place_in_data(self):
        """The sampler's state as the step under way began, or as the next one begins."""
        return self._place or (None if self.sampler is None else self.sampler.state_dict())

    def buffers(self):
        """Copies of the buffers of each model."""
        return [buffers.copies() for buffers in self._buffers]

    def put_buffers(self, copies):
        """But of models whose own update is still to come."""
        for number, (buffers, values) in enumerate(zip(self._buffers, copies)):
            if number not in self._waiting:
                buffers.put(values)

    def before_update(self, optimizer):
        """Does what all ranks do before an optimizer's update. A collective."""
        if self._unsettled:
            self._settle_buckets(optimizer)
        self.updated(optimizer)
        for number, (model, buffers, is_due) in enumerate(zip(self.models, self._buffers, self._has_own_buffers)):
            if is_due:  # rank 0's become all ranks', as with DDP
                buffers.equalize(model.process_group, waits=number in self._waiting)

    def updated(self, optimizer):
        """An optimizer updates its models, or has done so before the step was broken."""
        if self._waiting:
            self._waiting = self._waiting - self._models_of(optimizer)

    def _models_of(self, optimizer):
        """The numbers of the models that an optimizer updates."""
        key = (id(optimizer), sum(len(group["params"]) for group in optimizer.param_groups))
        if key not in self._known_models:
            own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            self._known_models[key] = {number for number, model in enumerate(self.models)
                                       if any(id(parameter) in own for parameter in model.parameters())}
        return self._known_models[key]

    def _settle_buckets(self, optimizer):
        """Has the reducers of what an optimizer updates rebuild their buckets before the first update, not in the second step's
        forward pass: so a rank that has done a step knows the layout of all that follow. A collective, once."""
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in list(self._unsettled):
            if any(id(parameter) in updated for parameter in model.parameters()) and reducer.rebuild(model):
                self._unsettled.remove(model)

    def drop_gradients(self, optimizer=None):
        """Drops gradients, so that an update changes nothing."""
        for one in [optimizer] if optimizer is not None else self.optimizers:
            for group in one.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def fill_gradients(self, optimizer=None):
        """Sets missing gradients to zeros where a pass or an update does nothing, for clipping, scalers and programs that read them."""
        for one in [optimizer] if optimizer is not None else self.optimizers:
            for group in one.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None and parameter.requires_grad:
                        parameter.grad = torch.zeros_like(parameter)

    def layouts(self):
        """The layouts of the models' buckets. A reducer without a backward pass so far has the layout that it was given."""
        self._layouts = [reducer.layout_of(model) or given for model, given in zip(self.models, self._layouts)]
        return self._layouts

    def know_layouts(self, layouts):
        """layouts: a peer's layouts(), to give on before reform()."""
        self._layouts = layouts

    def reform(self, layouts):
        """layouts: a peer's layouts()."""
        self._layouts, self._unsettled = layouts, list(self.models)
        for model, layout, trained in zip(self.models, layouts, self._wrapped):
            reducer.reform(model, layout, trained)

    def state(self):
        """The whole state, for a rank with an older one; tensors aren't copied. Call it after put_back()."""
        return {"models": [state_of(self._bare(model)) for model in self.models],
                "trained": [reducer.trained(self._bare(model)) for model in self.models],
                "unsaved": [buffers.unsaved() for buffers in self._buffers],
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "small": {"groups": None, "stateful": [one.state_dict() for one in self.stateful()]},
                "others": [one.detach() for one in self._others()],
                "sampler": self.place_in_data()}

    def _others(self):
        """The optimizers' parameters that no model has, as weights of losses."""
        own = {id(parameter) for model in self.models for parameter in model.parameters()}
        return [parameter for optimizer in self.optimizers for group in optimizer.param_groups for parameter in group["params"]
                if id(parameter) not in own]

    def load(self, state):
        """Takes a peer's state(), except for its place in the data."""
        with torch.no_grad():
            for model, buffers, given in zip(self.models, self._buffers, state["models"]):
                buffers.make(given)
                load_into(model.module, given)
        self._put_others(state)
        self._put_trained(state)
        for buffers, given in zip(self._buffers, state["unsaved"]):
            buffers.put_unsaved(given)
        for optimizer, given in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(given)
        self._put_small(state["small"])

    def _put_others(self, state):
        with torch.no_grad():
            for parameter, given in zip(self._others(), state["others"]):
                parameter.copy_(given)

    def _put_trained(self, state):
        """A script may freeze parameters, or begin to train others, at an epoch of its choice."""
        for model, given in zip(self.models, state["trained"]):
            reducer.set_trained(self._bare(model), given)

    def go_to(self, place):
        """Takes a peer's place in the data; no step is under way. Returns whether the loader's iteration goes on, because it was at
        that place."""
        self.end()
        goes_on = self.sampler.state_dict() == place
        if not goes_on:
            self.sampler.load_state_dict(place)
        return goes_on

    def stateful(self):
        return [*self.schedulers, *self.scalers, *self.extra.values()]

    def _put_small(self, small):
        for one, state in zip(self.stateful(), small["stateful"]):
            one.load_state_dict(copied(state))
        # After the schedulers: their load_state_dict() doesn't put the optimizer's learning rate back.
        for optimizer, groups in zip(self.optimizers, small["groups"] or []):
            put_options(optimizer, groups)
