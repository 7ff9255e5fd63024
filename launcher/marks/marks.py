"""Runs as `sitecustomize` while a worker's interpreter starts, and then the user's own, if there is one: has each step of an
optimizer marked on the worker's page of progress (docs/PROGRESS.md), unless the program marks by itself.

A step is over when an optimizer steps that has stepped in it before: two that take turns make one step together.
If every optimizer's step counted, a GAN would have twice as many steps; if only the first optimizer's counted, the count would
stop when a script goes on with another one. The hook's steps have a phase of their own, so that rules that read marks (work
done twice, restarts without progress) don't mistake a count that begins anew for a training's step. A program's own marks win:
the hook stores only over its own word. torch.compile doesn't trace the hook (_torchdynamo_disable). A .pth file can't be used,
because the installation isn't ours.
Standard parts only, and as few as can be: whatever is imported here is in every worker.
"""

import os
import sys
import time

_MARK, _TIME = 8, 9  # words of the page
_COUNTED = 7 << 56  # the phase of steps that are counted here

STORE_SECONDS = 10  # after which it is said that a store isn't where the script looks for it
WITNESS = os.path.join(os.path.dirname(__file__), "_ddprun_witness.py")


class _Finder:
    """A finder of importlib that finds nothing: it waits for modules."""

    def await_modules(self, awaited):
        """awaited: {name of a module: what to call with it}"""
        self.awaited = awaited
        for name in list(self.awaited):
            if name in sys.modules:  # a warm start
                self.awaited.pop(name)(sys.modules[name])
        if self.awaited:
            sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self.awaited:
            return None
        attach = self.awaited.pop(name)
        if not self.awaited:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
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
            attach(module)

        loader.exec_module = exec_module
        return spec


class _InProcessRestart(_Finder):
    """Has ddprun's Python package take over the script's process group (--in_process_restart)."""

    def __init__(self):
        self.await_modules({"torch.distributed.distributed_c10d": self.attach})

    def attach(self, module):
        original = module.init_process_group

        def init_process_group(*args, **kwargs):
            try:
                from ddprun.elastic.automatic import begin
            except Exception as error:
                if os.environ.get("RANK") == "0":
                    print("ddprun: --in_process_restart: ddprun's module can't be imported in %s (docs/INSTALL.md): %s: a "
                          "failure restarts all processes" % (sys.executable, error), file=sys.stderr, flush=True)
                return original(*args, **kwargs)
            return begin(_Finder().await_modules, original, *args, **kwargs)

        for name in ("__doc__", "__module__", "__qualname__"):
            setattr(init_process_group, name, getattr(original, name))
        for one in list(sys.modules.values()):  # those that have imported its name
            if getattr(one, "__dict__", {}).get("init_process_group") is original:
                one.init_process_group = init_process_group


class _Steps(_Finder):
    """Waits for torch's optimizers, and then for their steps, and for its process groups, beside which a witness looks on."""

    def __init__(self, path):
        self.path = path
        self.pid = os.getpid()
        self.memory = self.page = self.witness = self.make_witness = None
        self.word = 0  # as we stored it last
        self.place = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")  # of the workers' store
        self.stepped = set()  # the optimizers of this step, by id
        self.over = False
        self.await_modules({"torch.optim.optimizer": self.attach, "torch.distributed.distributed_c10d": self.attach_groups})

    def attach(self, module):
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            return

        def on_step(optimizer, *_):
            self.on_step(optimizer)

        # torch.compile must call the hook uncompiled: Dynamo looks up a function's module by name, and ours is gone.
        on_step._torchdynamo_disable = True
        register(on_step)

    def attach_groups(self, module):
        """Has the witness begin with the default group, before which ranks have nothing to wait for each other in."""
        update = getattr(module, "_update_default_pg", None)
        if update is None:
            return
        try:
            with open(WITNESS, encoding="utf-8") as source:
                code = compile(source.read(), WITNESS, "exec")
            names = {"__name__": "_ddprun_witness"}
            exec(code, names)
            self.make_witness = names["Witness"]
        except OSError:  # the agent's folder is not here: then nothing is said, and nobody named
            return

        def _update_default_pg(pg):
            update(pg)
            if pg is not None:
                self.watch()

        module._update_default_pg = _update_default_pg
        rendezvous = getattr(module, "rendezvous", None)
        if rendezvous is None or os.environ.get("RANK") != "0":
            return

        def watched(url, *args, **kwargs):
            stores = rendezvous(url, *args, **kwargs)
            found = self.doubt(url)
            try:
                first = next(stores)
            finally:
                if found is not None:
                    found.release()
            yield first
            yield from stores

        module.rendezvous = watched

    def doubt(self, url):
        """Has it said, after a while, that no store is where rank 0 looks for it; a lock to release when it was found."""
        try:
            if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or url.split(":")[0] not in ("env", "tcp"):
                return None
            asked = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
            if url.startswith("tcp:"):
                asked = tuple(url.split("//")[1].split("?")[0].split("/")[0].rsplit(":", 1))
            if asked[1] == self.place[1]:  # the same machine has many names
                return None
            text = ("ddprun: rank 0 has looked for the workers' store at %s:%s for %d s, but the launcher serves it at %s:%s, "
                    "and has set MASTER_ADDR and MASTER_PORT to that: don't change them, or remove TORCHELASTIC_USE_AGENT_STORE "
                    "from os.environ to have rank 0 serve a store of its own\n" % (*asked, STORE_SECONDS, *self.place))
            import _thread
            found = _thread.allocate_lock()
            found.acquire()
            _thread.start_new_thread(lambda: found.acquire(True, STORE_SECONDS) or os.write(2, text.encode()), ())
            return found
        except Exception:  # then nothing is said
            return None

    def end(self):
        self.over = True

    def open(self):
        """The page, or None."""
        if self.memory is None and os.getpid() == self.pid:  # a child may train for itself
            import mmap
            try:
                with open(self.path, "r+b") as file:
                    self.memory = mmap.mmap(file.fileno(), 4096)
            except (OSError, ValueError):  # a user or pid namespace of its own: the worker runs unmarked
                return None
            os.register_at_fork(after_in_child=self.end)
        return self.memory

    def watch(self):
        try:
            alone = os.environ.get("WORLD_SIZE", "1") == "1"  # nobody waits for it
            if self.witness is None and self.make_witness is not None and not alone and self.open():
                self.witness = self.make_witness(self.memory)
        except Exception:  # then nothing is said, and nobody named
            pass

    def begin(self):
        if self.open() is None:
            self.over = True
            return
        self.page = memoryview(self.memory).cast("Q")
        self.watch()
        if self.witness is not None:
            import _thread
            self.witness.thread = _thread.get_ident()

    def on_step(self, optimizer):
        if self.page is None and not self.over:
            self.begin()
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
    counts = not os.environ.pop("DDPRUN_MARK_OFF", "")
    if os.environ.pop("DDPRUN_IN_PROCESS_RESTART", ""):
        _InProcessRestart()
    if counts and os.environ.get("DDPRUN_PROGRESS"):
        _Steps(os.environ["DDPRUN_PROGRESS"])
    sys.modules.pop("sitecustomize", None)
    from importlib.machinery import PathFinder
    if PathFinder.find_spec("sitecustomize") is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    import sitecustomize  # the user's


_run()
