"""Runs as `sitecustomize` while a worker's interpreter starts, and then the user's own, if there is one: has each step of an
optimizer marked on the worker's page of progress (docs/PROGRESS.md), unless the program marks by itself.

A step is over when an optimizer steps that has stepped in it before: two that take turns make one step together.
Standard parts only, and as few as can be: whatever is imported here is in every worker.
"""

import os
import sys
import time

_MARK, _TIME = 8, 9  # words of the page
_COUNTED = 7 << 56  # the phase of steps that are counted here


class _Steps:
    """A finder of importlib that finds nothing; it waits for torch's optimizers, and then for their steps."""

    def __init__(self, path):
        self.path = path
        self.pid = os.getpid()
        self.page = None
        self.word = 0  # as we stored it last
        self.stepped = set()  # the optimizers of this step, by id
        self.over = False
        module = sys.modules.get("torch.optim.optimizer")
        if module is not None:  # a warm start
            self.attach(module)
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec
        wrapped = "exec_module" in vars(loader)  # by another one like us

        def exec_module(module):
            if wrapped:
                loader.exec_module = execute
            else:
                del loader.exec_module
            execute(module)
            self.attach(module)

        loader.exec_module = exec_module
        return spec

    def attach(self, module):
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            return

        def on_step(optimizer, *_):
            self.on_step(optimizer)

        # What torch.compile makes of an optimizer's step calls it as it is: it could not look at our module, which is gone.
        on_step._torchdynamo_disable = True
        register(on_step)

    def end(self):
        self.over = True

    def open(self):
        self.over = os.getpid() != self.pid  # a child that trains for itself
        if self.over:
            return
        import mmap
        try:
            with open(self.path, "r+b") as file:
                self.page = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        except (OSError, ValueError):  # a user or pid namespace of its own: the worker runs unmarked
            self.over = True
            return
        os.register_at_fork(after_in_child=self.end)

    def on_step(self, optimizer):
        if self.page is None and not self.over:
            self.open()
        if self.over:
            return
        page, which = self.page, id(optimizer)
        if page[_MARK] != self.word:  # the program marks by itself
            self.over = True
            return
        if self.word and which not in self.stepped:
            self.stepped.add(which)
            return
        self.stepped = {which}
        self.word = (self.word or _COUNTED) + 1
        page[_TIME] = time.monotonic_ns()
        page[_MARK] = self.word


def _run():
    python_path = os.environ.pop("DDPRUN_MARK_PYTHONPATH", None)
    if python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = python_path
    hook = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != hook]
    sys.path_importer_cache.pop(hook, None)
    if os.environ.get("DDPRUN_PROGRESS"):
        _Steps(os.environ["DDPRUN_PROGRESS"])
    sys.modules.pop("sitecustomize", None)
    from importlib.machinery import PathFinder
    if PathFinder.find_spec("sitecustomize") is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    import sitecustomize  # the user's


_run()
