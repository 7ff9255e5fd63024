"""Records what a worker imports. Placed in front of bootstrap.py, which imports the modules used here."""


class _Diary:
    """What a worker does until its first optimizer step, or until some seconds after its first collective without one."""

    def __init__(self, path):
        self.path = path
        self.roots = None
        self.real = {}  # folder: its path without links
        self.before = set(sys.modules)
        self.settings = []  # (how many modules there were, name, value, the file that did it)
        self.over = False
        diary = self

        class Environ(type(os.environ)):
            def __setitem__(self, name, value):
                super().__setitem__(name, value)
                diary.on_set(name, value)

        for name in ("__name__", "__qualname__", "__module__"):
            setattr(Environ, name, getattr(type(os.environ), name))
        self.plain = type(os.environ)
        os.environ.__class__ = Environ
        sys.meta_path.insert(0, self)
        sys._ddprun_learn = self.on_step  # for those who know a better moment (launcher/marks/witness.py)

    def on_set(self, name, value):
        if self.over or not isinstance(name, str):
            return
        frame = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc"):
            frame = frame.f_back
        self.settings.append((len(sys.modules), name, value, frame.f_code.co_filename if frame is not None else ""))

    def find_spec(self, name, path=None, target=None):
        """A finder of importlib that finds nothing; it only waits for the optimizers."""
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

        def on_step(*_):
            self.on_step()

        # torch.compile must call the hook uncompiled: Dynamo looks up a function's module by name, and ours is gone.
        on_step._torchdynamo_disable = True

        def exec_module(module):
            del loader.exec_module
            execute(module)
            if hasattr(module, "register_optimizer_step_post_hook"):
                module.register_optimizer_step_post_hook(on_step)

        loader.exec_module = exec_module
        return spec

    def on_step(self):
        if self.over:
            return
        self.over = True
        os.environ.__class__ = self.plain
        del sys._ddprun_learn
        try:
            self.write()
        except Exception as error:  # the training is none of our business
            sys.stderr.write("ddprun: what this worker has imported could not be written down: %r\n" % (error,))

    def write(self):
        self.roots = _roots()
        script_folder = os.path.realpath(sys.path[0]) if sys.path and sys.path[0] else os.getcwd()
        self.inside = [root for root in self.roots if _is_below(root, [script_folder])]  # an environment in the project's folder
        lines = ["signature " + _signature(self.roots)]
        # What a library sets it sets again when it is imported.
        settings = [setting[:3] for setting in self.settings if not _is_below(os.path.realpath(setting[3]), self.roots)]
        for index, (name, module) in enumerate(list(sys.modules.items())):
            while settings and settings[0][0] <= index:
                lines.append(self.line_of(settings.pop(0)))
            kind = self.kind_of(module, script_folder) if name not in self.before else ""
            if kind:
                lines.append(kind + " " + name)
        lines += [self.line_of(setting) for setting in settings]
        text = "\n".join(line for line in lines if line) + "\n"
        draft = "%s.%d" % (self.path, os.getpid())
        with open(draft, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.rename(draft, self.path)

    @staticmethod
    def line_of(setting):
        _, name, value = setting
        return "set %s=%s" % (name, value) if "\n" not in name + value else ""

    def kind_of(self, module, script_folder):
        """"" of the user's own."""
        spec = getattr(module, "__spec__", None)
        if spec is None or not spec.origin:
            return "seen"
        if spec.origin in ("built-in", "frozen"):
            return "module"
        if not os.path.isabs(spec.origin):
            return "seen"
        folder, name = os.path.split(spec.origin)
        file = os.path.join(self.real_folder(folder), name)
        own = _is_below(file, [script_folder]) and not _is_below(file, self.inside)
        return "module" if _is_below(file, self.roots) and not own else ""

    def real_folder(self, path):
        """os.path.realpath(path), with each folder looked at once: 2 ms of a first step in place of 70, for PyTorch's modules."""
        real = self.real.get(path)
        if real is None:
            above, name = os.path.split(path)
            real = os.path.join(self.real_folder(above), name) if name not in ("", os.pardir) else os.path.realpath(path)
            self.real[path] = real = os.path.realpath(real) if os.path.islink(real) else real
        return real
