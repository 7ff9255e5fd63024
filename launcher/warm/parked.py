"""An interpreter that waits: bootstrap.py executes this, behind trial.py, where one is asked for."""

import time

SLOW_IMPORT = 0.5  # seconds; `ddprun doctor` names such modules
# Next to nothing of what imports make is garbage, and to look for it as often as usual takes up to a tenth of their time.
NO_GARBAGE = (1 << 30, 1000, 1000)
IDLE_SECONDS = 10  # where all processors are busy, the idle class may never come to an end


class _Parked:
    """Imports what was learned, then becomes workers: returns in each of them, and never in the process itself."""

    def __init__(self, channel, path, idle):
        import _socket
        self.socket = _socket
        self.channel = _socket.socket(fileno=channel)
        self.idle = idle
        self.oom_score = self.read("/proc/self/oom_score_adj")
        self.write("/proc/self/oom_score_adj", b"1000")  # the first to go when memory is short
        self.roots = _roots()
        self.lines = self.read(path).decode("utf-8", "surrogateescape").splitlines()
        self.varying = {line[7:] for line in self.lines if line.startswith("varies ")}
        self.refused = {}  # module: why
        self.printed = {}  # descriptor: what imports printed there
        self.trial = _Trial()

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    @staticmethod
    def write(path, data):
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError:
            pass

    def say(self, text, channel=None):
        (channel or self.channel).send(b"p" + text.encode("utf-8", "surrogateescape"))

    def become_workers(self):
        self.signature = _signature(self.roots)
        if next((line[10:] for line in self.lines if line.startswith("signature ")), self.signature) != self.signature:
            self.say("stale")
            os._exit(0)
        began = time.monotonic()
        end_idling = self.step_back() if self.idle else None
        import gc
        usual = gc.get_threshold()
        gc.set_threshold(*NO_GARBAGE)
        self.import_all()
        if gc.get_threshold() == NO_GARBAGE:  # else a module has said how it is to be
            gc.set_threshold(*usual)
        if end_idling is not None:
            end_idling()
        if self.refused:
            for module, why in self.refused.items():
                self.say("refuse %s %s" % (module, why))
            os._exit(0)
        alone = len(self.list("task")) == 1
        why = "" if alone and "torch" not in sys.modules else self.trial.why_not()
        if why:
            self.say("cannot " + why)
            os._exit(0)
        self.files = self.imported_files()
        import ctypes
        self.libc = ctypes.CDLL(None)
        gc.collect()
        gc.freeze()
        self.say("ready %d %d" % ((time.monotonic() - began) * 1000, self.held()))
        while not self.fork_ahead():
            pass
        gc.unfreeze()

    # -- whether what was imported is what would be imported now

    def imported_files(self):
        """{path: version} of the modules, installed packages included: a developer may edit one in place."""
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        return {path: self.version(path) for path in paths if isinstance(path, str) and os.path.isabs(path)}

    @staticmethod
    def version(path):
        try:
            facts = os.stat(path)
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def is_old(self):
        return _signature(self.roots) != self.signature or any(
            self.version(path) != version for path, version in self.files.items())

    def step_back(self):
        """To SCHED_IDLE for IDLE_SECONDS, where there is a way back for workers; returns what ends it before."""
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        idle = os.SCHED_IDLE, os.sched_param(0)
        pid = os.fork()
        if pid == 0:
            status = 1  # without CAP_SYS_NICE there may be none (sched(7), RLIMIT_NICE)
            try:
                os.sched_setscheduler(0, *idle)
                os.sched_setscheduler(0, *before)
                status = 0
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1] != 0:
            return None
        import _signal
        disposition = _signal.getsignal(_signal.SIGALRM)

        def end(*_):
            os.sched_setscheduler(0, *before)
            _signal.alarm(0)
            if _signal.getsignal(_signal.SIGALRM) is end:
                _signal.signal(_signal.SIGALRM, disposition)

        _signal.signal(_signal.SIGALRM, end)
        _signal.alarm(IDLE_SECONDS)
        os.sched_setscheduler(0, *idle)
        try:  # a request from now on restores our priority (the keeper does)
            self.channel.recv(1, self.socket.MSG_PEEK | self.socket.MSG_DONTWAIT)
            end()
        except BlockingIOError:
            pass
        return end

    def held(self):
        """Memory that is nobody else's, in KiB; what is mapped of files can be had again."""
        kinds = (b"RssAnon:", b"RssShmem:")  # source: proc(5)
        lines = [line.split() for line in self.read("/proc/self/status").splitlines()]
        return sum(int(words[1]) for words in lines if words and words[0] in kinds)

    # -- imports

    def import_all(self):
        import importlib
        learned = {line[7:] for line in self.lines if line.startswith("module ")}
        known = learned | {line[5:] for line in self.lines if line.startswith("seen ")} | set(sys.modules)
        # variables of the script, and what has torch ask NVML, and not CUDA, whether there are GPUs: what they were without
        set_before = {"PYTORCH_NVML_BASED_CUDA_CHECK": os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")}
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        self.watch_environment()
        self.capture()
        fds, threads = self.list("fd"), {}
        self.importing = ""
        for line in self.lines:
            kind, _, rest = line.partition(" ")
            if kind == "set":
                name, _, value = rest.partition("=")
                set_before.setdefault(name, os.environ.get(name))
                os.environ[name] = value
            if kind not in ("module", "preload") or rest in sys.modules:
                continue
            tasks = self.list("task")
            self.importing = rest
            began = time.monotonic()
            try:
                importlib.import_module(rest)
            except BaseException:  # the worker will meet it, if it is one
                continue
            took = time.monotonic() - began
            self.trial.watch_cuda(self.on_asked)
            if took >= SLOW_IMPORT:
                self.say("took %s %d" % (rest, took * 1000))
            for fd in self.list("fd") - fds:
                self.refuse([rest], "leaves the descriptor of %s open" % self.target(fd))
                fds.add(fd)
            for task in self.list("task") - tasks:
                threads[task] = rest
            unknown = set(sys.modules) - known
            if unknown and kind == "module":
                self.refuse([rest], "imports %s, which the script does not" % sorted(unknown)[0])
            known |= unknown
        self.unwatch_environment()
        self.trial.unwatch_cuda()
        self.release()
        for name, value in set_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.refuse_threads(threads)

    def refuse(self, modules, why):
        for module in modules:
            self.refused.setdefault(module, why)

    @staticmethod
    def list(what):
        """The numbers in a folder of /proc/self; without the descriptor that reads it."""
        names = set(os.listdir("/proc/self/" + what))
        return {name for name in names if what != "fd" or os.path.lexists("/proc/self/fd/" + name)}

    @staticmethod
    def target(fd):
        try:
            return os.readlink("/proc/self/fd/" + fd)
        except OSError:
            return "?"

    def refuse_threads(self, threads):
        """Of threads those may be left that a library stops itself when it sees a fork (OpenBLAS does), and those of libraries
        that sleep, as jemalloc's and Arrow's pools do: they hold no lock, and their libraries know of forks (pthread_atfork),
        as every DataLoader with workers needs it. Not Python's: a module that has started one counts on it."""
        if len(self.list("task")) == 1:
            return
        self.trial.child(lambda: 0)
        pythons = len(sys._current_frames()) > 1
        for task in self.list("task"):
            if task != str(os.getpid()) and (pythons or not self.trial.sleeps(task)):
                self.refuse([threads.get(task, self.importing)], "starts a thread")

    def watch_environment(self):
        """A module that reads a varying variable at its import can't be imported before the workers are known."""
        parked = self
        self.plain = type(os.environ)

        class Environ(type(os.environ)):
            def __getitem__(self, name):
                if name in parked.varying:
                    parked.on_asked(name)
                return super().__getitem__(name)

        os.environ.__class__ = Environ

    def unwatch_environment(self):
        os.environ.__class__ = self.plain

    def on_asked(self, what):
        """For what can't be known, or asked, before there are workers."""
        frame, modules = sys._getframe(2), [self.importing]
        while frame is not None and frame.f_code is not _Parked.import_all.__code__:
            if frame.f_code.co_name == "<module>":
                modules.append(frame.f_globals.get("__name__", "?"))
            frame = frame.f_back
        self.refuse(modules, "reads %s when it is imported" % what)

    def capture(self):
        """What imports print every worker prints."""
        self.kept = {}
        for fd in (1, 2):
            self.kept[fd] = os.dup(fd)
            file = os.memfd_create("ddprun-printed")
            os.dup2(file, fd)
            os.close(file)

    def release(self):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for fd, kept in self.kept.items():
            self.printed[fd] = os.pread(fd, os.fstat(fd).st_size, 0)
            os.dup2(kept, fd)
            os.close(kept)

    # -- workers

    def fork_ahead(self):
        """Forks the next worker before it is asked for, because a fork of so much memory takes some 30 ms; from a child between,
        which ends when the worker is asked for, so that the worker is the keeper's child. True in the worker, false when the next
        one is to be forked."""
        asked, ask = os.pipe()
        orphaned, orphan = os.pipe()
        waiting = os.getpid()
        between = self.trial.fork()
        if between != 0:
            for fd in (asked, ask, orphaned):
                os.close(fd)
            if os.waitpid(between, 0)[1] != 0:
                os._exit(0)  # the keeper is gone, or what was imported is old
            os.close(orphan)  # by us: its own descriptors close before its children are given away
            return False
        os.close(orphan)
        self.die_with(waiting)
        between = os.getpid()
        if self.trial.fork() != 0:
            os.close(ask)
            self.wait_small(asked)
        self.die_with(between)
        os.close(asked)
        words, streams, answers = self.await_request()
        try:
            self.die_with(None)
            os.write(ask, b"!\n")
            os.read(orphaned, 1)  # ends when the one between is reaped, which makes us the keeper's child
            os.close(ask)
            os.close(orphaned)
            self.become(words, streams, answers)
            return True
        except BaseException:
            os._exit(1)

    @staticmethod
    def wait_small(asked):
        """Ends with 0 when the worker is asked for, with 1 when it has ended: as a shell, where there is one, because a process
        that shares so much memory takes 10 to 20 ms to end, and the worker waits for its end."""
        os.dup2(asked, 0)
        try:
            os.execve("/bin/sh", ["sh", "-c", "read -r asked"], {})
        except OSError:
            os._exit(0 if os.read(asked, 1) else 1)

    def die_with(self, parent):
        self.libc.prctl(1, 0 if parent is None else 9)  # PR_SET_PDEATHSIG, SIGKILL
        if parent is not None and os.getppid() != parent:
            os._exit(1)

    def await_request(self):
        """What a worker is asked for; ends the process when none is, or must not be, made here any more."""
        while True:
            data, control, _, _ = self.channel.recvmsg(1 << 16, self.socket.CMSG_SPACE(4 * 8))
            if not data:
                os._exit(0)  # the keeper is gone
            fds = [int.from_bytes(part[i:i + 4], sys.byteorder) for _, _, part in control for i in range(0, len(part), 4)]
            if data[:1] == b"f":
                data = b"f" + os.pread(fds[0], os.fstat(fds[0]).st_size, 0)
                os.close(fds.pop(0))
            words = data[1:].split(b"\0")[:-1]
            if b"c" in words[2] and self.is_old():
                self.say("old")
                os._exit(0)
            answers = self.socket.socket(fileno=fds.pop(0))
            streams = {fd: fds.pop(0) for fd, letter in ((0, b"i"), (1, b"o"), (2, b"e")) if letter in words[2]}
            try:
                self.say("taken", answers)
                return words, streams, answers
            except OSError:  # it isn't wanted any more
                self.close(answers, *streams.values())

    @staticmethod
    def close(answers, *fds):
        answers.close()
        for fd in fds:
            os.close(fd)

    def become(self, words, streams, answers):
        os.setsid()
        self.die_with(int(words[0]))
        self.say("pid %d" % os.getpid(), answers)
        if words[1]:
            os.sched_setaffinity(0, [int(cpu) for cpu in words[1].split(b",")])
        self.write("/proc/self/oom_score_adj", self.oom_score)
        for fd, stream in streams.items():
            os.dup2(stream, fd)
            os.close(stream)
        self.rebuild_streams(streams)
        self.take_environment(words[3:])
        self.renew()
        self.channel.close()
        self.say("set", answers)
        if answers.recv(16) != b"pgo":
            os._exit(1)
        answers.close()
        for fd, text in self.printed.items():
            if text:
                os.write(fd, text)

    @staticmethod
    def rebuild_streams(streams):
        """sys.stdin, sys.stdout and sys.stderr as they would be, had they begun as a file, a pipe or a terminal."""
        import io
        for fd, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
            stream = getattr(sys, name)
            if fd not in streams or stream is None:
                continue
            unbuffered, mode = stream.write_through, "w" if fd else "r"
            buffer = io.open(fd, mode + "b", 0 if unbuffered and fd else -1, closefd=False)
            getattr(buffer, "raw", buffer).name = "<%s>" % name
            new = io.TextIOWrapper(buffer, stream.encoding, stream.errors, "\n", write_through=unbuffered,
                                   line_buffering=not unbuffered and (fd == 2 or os.isatty(fd)))
            new.mode = mode
            setattr(sys, name, new)
            setattr(sys, "__%s__" % name, new)

    def take_environment(self, variables):
        """Both Python's and the C library's, and what /proc says that the process was started with."""
        wanted = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
        before = dict(os.environb)
        for name in before:
            if name not in wanted:
                del os.environb[name]
        for name, value in wanted.items():
            if before.get(name) != value:
                os.environb[name] = value
        self.rewrite_block(wanted)

    def rewrite_block(self, wanted):
        fields = self.read("/proc/self/stat").rpartition(b")")[2].split()
        begin, end = int(fields[47]), int(fields[48])  # env_start and env_end; source: proc(5)
        with open("/proc/self/mem", "r+b", 0) as memory:
            memory.seek(begin)
            block = memory.read(end - begin)
            tail = block.find(b"\0DDPRUN_WARM=") + 1
            if tail == 0:
                return
            kept = set(block[:tail].split(b"\0"))
            # The tag first: the keeper assigns a process to its worker by the tag.
            news = [name + b"=" + value for name, value in wanted.items() if name + b"=" + value not in kept]
            news.sort(key=lambda variable: not variable.startswith(b"DDPRUN_WORKER_TAG="))
            text, room = b"", end - begin - tail
            for variable in news:
                if len(text) + len(variable) < room:
                    text += variable + b"\0"
            memory.seek(begin + tail)
            memory.write(text.ljust(room, b"\0"))

    @staticmethod
    def renew():
        """What every process draws at random or reads from the clock when it imports these."""
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed()
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "default_generator"):
            torch.default_generator.seed()  # of the CPU; those of GPUs begin with a constant
        logging = sys.modules.get("logging")
        if logging is not None and hasattr(logging, "_startTime"):
            now = logging.makeLogRecord({}).created
            logging._startTime = int(now * 1e9) if logging._startTime > 1e15 else now  # nanoseconds from 3.13 on
        process = sys.modules.get("multiprocessing.process")
        if process is not None:
            process.current_process().authkey = os.urandom(32)
