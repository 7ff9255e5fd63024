"""Runs as `sitecustomize` while a worker's interpreter starts, and then the user's own, if there is one: has each step of an
optimizer marked on the worker's page of progress (docs/PROGRESS.md), unless the program marks by itself.

A step is over when an optimizer steps that has stepped in it before: two that take turns make one step together.
Standard parts only, and as few as can be: whatever is imported here is in every worker.
"""

import os
import sys
import time

_MARK, _TIME = 8, 9  # words of the page
_COLLECTIVES, _LOOKED, _LOOKS, _PLACES, _JUMPS = 48, 49, 50, 51, 52
_PLACE, _PLACE_BYTES = 512, 480  # a text
_COUNTED = 7 << 56  # the phase of steps that are counted here


LOOK_SECONDS = 0.25
GROWTH = 64  # blocks of memory by which a look finds more than the one before: something is made


class _Witness:
    """A thread beside the training that says what the kernel can't: how many collectives this rank has begun, which shows who of
    ranks that wait for each other is waited for, and, while there is no step, whether the training's thread is at work or
    runs in a circle."""

    def __init__(self, steps, memory):
        import _thread
        import atexit
        import opcode
        self.steps = steps
        self.pid = os.getpid()
        self.page = memoryview(memory).cast("Q")
        self.text = memoryview(memory)
        self.jumps = {code for code, name in enumerate(opcode.opname) if "JUMP" in name}
        self.thread = _thread.get_ident()  # that takes the steps
        self.word = self.looks = self.blocks = self.grown = 0
        self.places = set()
        self.looking = _thread.allocate_lock()
        pause = _thread.allocate_lock()
        pause.acquire()
        atexit.register(self.end)

        def run():
            while not pause.acquire(True, LOOK_SECONDS):
                with self.looking:
                    if steps.over:
                        return
                    try:
                        self.look()
                    except Exception:  # then nothing is said, and nobody named
                        return

        _thread.start_new_thread(run, ())

    def end(self):
        """No look is under way when the interpreter ends, which ends threads wherever they are."""
        self.steps.over = True
        if os.getpid() == self.pid:  # a forked child has no such thread
            with self.looking:
                pass

    def look(self):
        page = self.page
        if page[_MARK] != self.word:
            self.word = page[_MARK]
            self.looks = self.grown = page[_LOOKS] = page[_JUMPS] = page[_PLACES] = 0
            self.places = set()
        else:
            self.look_at(sys._current_frames().get(self.thread))
        page[_COLLECTIVES] = self.collectives()
        page[_LOOKED] = time.monotonic_ns()

    def look_at(self, frame):
        if frame is None:
            return
        code, page = frame.f_code, self.page
        blocks = sys.getallocatedblocks()
        self.grown += self.looks > 0 and abs(blocks - self.blocks) > GROWTH
        self.blocks = blocks
        self.looks += 1
        self.places.add(code)
        page[_PLACES] = len(self.places) + self.grown
        page[_JUMPS] += code.co_code[frame.f_lasti] in self.jumps
        page[_LOOKS] = self.looks
        where = []
        while frame is not None and len(where) < 8:
            code = frame.f_code
            where.append("%s:%d in %s" % (os.path.basename(code.co_filename), frame.f_lineno or 0, code.co_name))
            frame = frame.f_back
        text = " < ".join(where).encode("utf-8", "replace")[:_PLACE_BYTES - 1]
        self.text[_PLACE:_PLACE + _PLACE_BYTES] = text.decode("utf-8", "ignore").encode().ljust(_PLACE_BYTES, b"\0")

    @staticmethod
    def collectives():
        try:
            return sys.modules["torch.distributed.distributed_c10d"].GroupMember.WORLD._get_sequence_number_for_group() + 1
        except Exception:  # there is no group, or it doesn't count
            return 0


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
                memory = mmap.mmap(file.fileno(), 4096)
            self.page = memoryview(memory).cast("Q")
        except (OSError, ValueError):  # a user or pid namespace of its own: the worker runs unmarked
            self.over = True
            return
        if self.page[_MARK] == 0 and os.environ.get("WORLD_SIZE", "1") != "1":  # alone nobody waits for it
            _Witness(self, memory)
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
