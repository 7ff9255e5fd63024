"""What a script changes in objects of its own while it trains, which a new worker wouldn't have.

    losses = []                                  # a local variable of main(), which a callback appends to
    class Net(LightningModule):
        def training_step(self, batch, _):
            self.seen += 1                       # an attribute

Objects are compared with what they were when the training began, when a worker was lost. A difference says that a new worker
can't be given the whole state. Nothing is looked at in between.
"""

import collections
import functools
import hashlib
import itertools
import random
import sys
import types

import torch

from ddprun.elastic.transfer import version_of

_PLAIN = (bool, int, float, complex, type(None))
_ELEMENTS, _OBJECTS = 1000, 10000  # looked at, of a container and of a value
_ARRAY_BYTES = 1 << 20
_DEPTH = 5
# Objects of these packages are the frameworks' business.
_FRAMEWORKS = ("torch", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities", "transformers", "accelerate",
               "trl", "peft", "datasets", "datasets_modules", "evaluate", "evaluate_modules", "tokenizers", "ddprun", "importlib", "logging", "runpy")
_TORCHS = frozenset((*vars(torch.nn.Module()), "forward"))  # which frameworks replace


def is_frameworks(kind):
    """Whether a class is a framework's: its objects aren't the script's."""
    return kind.__module__.split(".")[0] in _FRAMEWORKS


@functools.lru_cache(None)
def _private_names(kind):
    """The private attributes that the frameworks' own classes have in an object of a script's class: they set some of them late."""
    found = set()
    for base in kind.__mro__:
        if base is not object and is_frameworks(base):
            for one in vars(base).values():
                code = getattr(getattr(one, "fget", getattr(one, "__func__", one)), "__code__", None)
                found.update(name for name in getattr(code, "co_names", ()) if name[:1] == "_")
    return frozenset(found)


def _is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _flat(mapping):
    """Its keys and values one by one, not in pairs: Python uses one tuple again for all pairs."""
    return itertools.chain.from_iterable(mapping.items())


class _Print:
    """A digest that changes with a value: of what is in it, and of identities, because it is compared within the process."""

    def __init__(self, kept):
        # Objects that were seen are held: a new one may get the identity of one that is gone.
        self._kept, self._seen, self._whole = kept, {}, hashlib.blake2b(digest_size=16)

    def of(self, value):
        """Never raises: objects of a script may answer anything. One that raises an error counts by its identity."""
        try:
            self._add(value, 0)
        except Exception:
            self._put(id(value))
        return self._whole.digest()

    def _put(self, what):
        self._whole.update(repr(what).encode())

    def _add(self, value, depth):
        kind = type(value)
        if kind in _PLAIN:
            self._put(value)
        elif kind in (str, bytes):
            self._put(hash(value))  # which Python computes once: a text may be a whole data set
        elif isinstance(value, torch.Tensor):
            self._put(id(value) if id(value) in self._kept else (id(value), version_of(value)))
        elif id(value) in self._seen or len(self._seen) > _OBJECTS:
            self._put(id(value))
        else:
            self._seen[id(value)] = value
            if not isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
                self._put(id(value))
                if id(value) not in self._kept:
                    self._add_inside(value, kind, depth)
            else:
                self._put(len(value))
                self._add_all(_flat(value) if isinstance(value, dict) else value, depth)

    def _add_inside(self, value, kind, depth):
        if isinstance(value, random.Random):
            self._put(value.getstate())
        elif isinstance(value, torch.Generator):
            self._put(value.get_state().tolist())
        elif hasattr(value, "bit_generator"):  # numpy's
            self._put(value.bit_generator.state)
        elif _is_array(value):  # perhaps of a file of many GB
            self._put(value.flat[:_ARRAY_BYTES // max(value.itemsize, 1)].tobytes())
        elif kind.__module__ == "itertools":
            self._put(value)
        elif isinstance(value, types.FunctionType):
            self._add_all((cell.cell_contents for cell in value.__closure__ or ()), depth)
        elif isinstance(value, types.MethodType):
            self._add(value.__self__, depth + 1)
        elif isinstance(value, torch.nn.Module):  # as an average of the model
            for one in itertools.chain(value.parameters(), value.buffers()):
                self._add(one, depth)
        elif not isinstance(value, (type, types.ModuleType)) and not is_frameworks(kind):
            own = getattr(value, "__dict__", {})
            frameworks = _private_names(kind) & own.keys()
            self._add_all(_flat({name: one for name, one in list(own.items()) if name not in frameworks} if frameworks else own), depth)

    def _add_all(self, values, depth):
        if depth >= _DEPTH:
            return
        try:
            for one in itertools.islice(values, _ELEMENTS):
                self._add(one, depth + 1)
        except (TypeError, ValueError, RuntimeError):  # it can't be iterated, a cell is empty, or another thread changes it
            pass


def callers():
    """The frames of the script, from the outermost one to its call of a framework."""
    frame, stack = sys._getframe(1), []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    found = []
    for one in reversed(stack):
        if one.f_globals.get("__name__", "").split(".")[0] in _FRAMEWORKS:
            break
        found.append(one)
    return found


def modules_of(model):
    """For Watch: {name: (a module, the names of attributes that are the framework's)} of all modules of a model. Of torch's own only
    plain attributes are looked at, such as a Dropout's p; a recurrent layer lists its parameters."""
    found = {}
    for name, one in model.named_modules():
        kind = type(one)
        if not is_frameworks(kind):
            found[name or "the model"] = one, _TORCHS
        elif kind.__module__.startswith("torch.nn.modules."):
            found[name or "the model"] = one, _TORCHS | {key for key, value in vars(one).items() if type(value) not in (*_PLAIN, str)}
    return found


class Watch:
    """What a script's objects were."""

    def __init__(self, objects, kept):
        """objects: {what it is: (an object, the names of attributes that are the framework's)}. kept: objects that others keep."""
        self._objects, self._frames = objects, callers()
        others = [*kept, *(one for one, _ in objects.values())]
        self._kept = {id(one) for one in others}
        for one in others:
            if isinstance(one, torch.nn.Module):
                self._kept.update(map(id, itertools.chain(one.parameters(), one.buffers())))
        self._before = self._now()

    def changed(self):
        """What has changed, in words; [] = nothing. Threads: any."""
        now = self._now()
        return sorted(name for name in self._before.keys() | now.keys() if self._before.get(name) != now.get(name))

    def _now(self):
        found = {}
        for what, (one, ignored) in self._objects.items():
            ignored = ignored | _private_names(type(one))
            for kind in [one, *(kind for kind in type(one).__mro__ if not is_frameworks(kind) and kind is not object)]:
                found.update((f"{name} of {what}", _Print(self._kept).of(value)) for name, value in list(vars(kind).items()) if name not in ignored)
        for frame in self._frames:
            module = frame.f_globals.get("__name__")
            found.update((f"{name} of {module}", _Print(self._kept).of(value)) for name, value in list(frame.f_globals.items()) if name[:2] != "__")
            if frame.f_locals is not frame.f_globals and frame.f_code.co_name != "<module>":
                found.update((f"{name} of {frame.f_code.co_name}()", _Print(self._kept).of(value)) for name, value in list(frame.f_locals.items()))
        return found
