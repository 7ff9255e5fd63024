"""Whether an interpreter that has imported what workers import may be forked: in front of bootstrap.py, as diary.py is."""


class _Trial:
    """Has a child do what workers do, before any worker depends on it."""

    SECONDS = 5  # it takes some milliseconds
    OF_CUDA = 2  # its exit status

    def __init__(self):
        self.asked_cuda = None  # functions of torch that ask CUDA, by name; None = they aren't watched

    @staticmethod
    def fork():
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
            return os.fork()

    def child(self, run):
        """The exit status of a child, which is what `run` returns; minus the signal that it died of."""
        pid = self.fork()
        if pid == 0:
            status = 1
            try:
                status = run()
            finally:
                os._exit(status)
        status = os.waitpid(pid, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    @staticmethod
    def sleeps(task):
        """Whether a thread does at one of many moments: it may have to wake up now and then."""
        for _ in range(200):
            try:
                with open("/proc/self/task/%s/stat" % task, "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] == b"S":
                        return True
            except OSError:  # it has ended
                return True
            os.sched_yield()
        return False

    def why_not(self):
        """What is wrong with forks of this process; "" = nothing is."""
        status = self.child(self.do_what_workers_do)
        if status == 0:
            return ""
        if status == self.OF_CUDA:
            return "a module that is imported asks CUDA, which can't be used in a fork then"
        return "a child that used the imported libraries %s" % (
            "did not come to an end" if status == -14 else "ended with status %d" % status)  # SIGALRM

    def do_what_workers_do(self):
        import _signal
        import _thread
        import gc
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.alarm(self.SECONDS)
        gc.collect()
        kept = [bytes(1 << (i % 20)) for i in range(200)]
        ended = _thread.allocate_lock()
        ended.acquire()
        _thread.start_new_thread(ended.release, ())
        ended.acquire()
        del kept
        numpy, pyarrow, torch = map(sys.modules.get, ("numpy", "pyarrow", "torch"))
        if hasattr(numpy, "ones"):
            numpy.ones((64, 64)).dot(numpy.ones((64, 64)))
        if hasattr(pyarrow, "array"):
            pyarrow.array([1, 2, 3]).to_pylist()
        if hasattr(torch, "ones"):
            torch.ones(256, 256).mm(torch.ones(256, 256)).sum().item()
            cuda = getattr(torch, "cuda", None)
            if self.has_gpu() and getattr(cuda, "_is_in_bad_fork", lambda: False)():
                return self.OF_CUDA
        return 0

    @staticmethod
    def has_gpu():
        """Without one nothing is lost when torch thinks that CUDA can't be used in a fork."""
        return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")

    def watch_cuda(self, on_asked):
        """A module that initializes CUDA (not NVML) at its import can't be imported ahead: CUDA fails in a fork then."""
        library = getattr(sys.modules.get("torch"), "_C", None)
        if library is None or self.asked_cuda is not None or not self.has_gpu():
            return
        self.asked_cuda = {}
        for name in ("_cuda_getDeviceCount", "_cuda_init"):
            if hasattr(library, name):
                self.asked_cuda[name] = getattr(library, name)
                setattr(library, name, lambda *_, ask=self.asked_cuda[name]: (on_asked("CUDA"), ask())[1])

    def unwatch_cuda(self):
        for name, ask in (self.asked_cuda or {}).items():
            setattr(sys.modules["torch"]._C, name, ask)
