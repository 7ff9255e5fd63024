"""Process groups that stay the same objects while the connections under them are replaced.

DDP, device meshes and programs keep the group that they were given. So the group object lives for good, and forwards each
collective to a backend (Gloo's) that a new generation replaces.

A collective that waits for a lost peer is ended by shutdown(2) of the backend's sockets. Gloo has no other way: abort(),
shutdown() and destroy_process_group() did nothing within 2.5 s, and its own timeout is 30 minutes. The backend's sockets are
known for certain, whatever else the program opens at the same time: each backend listens on a port of its own, the ranks
exchange these addresses, and every connection of the backend has one of them as an end. The listening socket isn't shut down,
because Gloo's thread ends the process when accept(2) fails.

One kind of wait remains: if a peer's end reaches a connection between two writes, Gloo forgets the message that it was about to
send (Pair::write() leaves EPIPE to a later try, and Pair::signalException() fails the messages that wait for the peer, but not
those in its queue). A collective has been forgotten for certain when Gloo has closed the backend's sockets, because it has
woken all waits before, and the backend's threads are in a wait still: a thread that was woken and is only late, on a busy
machine, is runnable. Then the future on which DDP's reducer waits in C++ is fulfilled with the data that are there, and the session
considers the step broken. Gloo's thread would end the process if it fulfilled that future again after its timeout. So Gloo's
timeout is a year, and the group's timeout is checked here, by waits in slices and a thread; and the backend of such a thread is never
destroyed, because its destructor would wait for it.

    rank 0 listens on 10.0.0.1:4000, rank 1 on 10.0.0.2:5000
    rank 1:  10.0.0.2:38122 -> 10.0.0.1:4000      the remote end is rank 0's listener: shut down
             10.0.0.2:41000 -> 10.0.0.9:443       neither end is one: somebody else's
"""

import atexit
import collections
import contextlib
import ctypes
import inspect
import os
import platform
import socket
import stat
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ddprun.elastic import callers, nccl
from ddprun.elastic.store import PeerError

NAME = "ddprun"
# All ranks exist when they begin to connect. A thread that waits for a rank that has died meanwhile ends after this time.
CONNECT_TIMEOUT = timedelta(seconds=120)
_COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_into_tensor_coalesced", "allgather_coalesced",
    "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "scatter", "gather_single", "send", "recv", "recv_anysource", "monitored_barrier")
# torch 2.15 calls some of them by other names.
NEW_NAMES = {
    "all_gather_single": "_allgather_base", "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single": "_reduce_scatter_base", "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base"}

_REDUCE_SCATTERS = ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
# Operations whose works can't be watched; they end by themselves.
POINT_TO_POINT = ("send", "recv", "recv_anysource")
_SLICE = timedelta(seconds=0.1)
_LOOK_SECONDS = 0.01  # between two looks at whether a collective is forgotten
_END_SECONDS = 1.0    # for what is under way as a program ends
_WORD_SECONDS = 1.0   # of the agent, from the end of a peer's connection on
_THREADS, _NAME_OF_THREADS = 2, "pt_gloo_runloop"  # of a backend
_FUTEX, _WAIT_BITSET = {"x86_64": "202", "aarch64": "98"}.get(platform.machine()), 9  # futex(2): what glibc's condition variables call
_YEAR = timedelta(days=365)
_GLOO = ("gloo", "cpu:gloo")  # names of backends


def missing_parts():
    """The names used here that this version of torch lacks; [] = none."""
    wanted = [(c10d, "FakeProcessGroup"), (c10d, "ProcessGroupGloo"), (dist.Backend, "register_backend"),
              (getattr(c10d, "ProcessGroupGloo", object), "create_default_device"), (dist, "_compute_bucket_assignment_by_size"),
              (dist, "DistStoreError"), (dist.distributed_c10d, "_new_process_group_helper")]
    return [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name in wanted if not hasattr(owner, name)]


def _tcp_sockets():
    """Copies of this process' TCP sockets, which the caller closes."""
    copies = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            number = os.dup(int(name))
            blocks = os.get_blocking(number)
            copy = socket.socket(fileno=number)
            os.set_blocking(number, blocks)  # with a default time-out Python changes it, for all copies
        except OSError:
            continue  # closed meanwhile
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            copies.append(copy)
        else:
            copy.close()
    return copies


def _end(address):
    """A socket's address in the form in which ranks exchange it."""
    return f"{address[0]} {address[1]}"


def _listening():
    """The addresses where this process listens."""
    found = set()
    for copy in _tcp_sockets():
        with copy:
            if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(_end(copy.getsockname()))
    return found


def _threads():
    """The numbers of this process' threads."""
    return set(os.listdir("/proc/self/task"))


def _line(thread, name):
    """One of the kernel's files about a thread, which has one line; "" = the thread has ended."""
    try:
        with open(f"/proc/self/task/{thread}/{name}", encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


class PythonWork(dist.Work):
    """A work whose methods are Python's. torch 2.4 forgets them when it holds the work in C++ and nobody holds the Python object, and
    would wait forever. So those that were handed out are held until somebody asks for their end."""

    def asked(self):
        _unasked.pop(id(self), None)


_unasked, _UNASKED_MOST = {}, 100  # by identity. A program that never asks would fill the memory


def _held(work):
    if isinstance(work, PythonWork):
        _unasked[id(work)] = work
        if len(_unasked) > _UNASKED_MOST:
            _unasked.pop([*_unasked][0], None)
    return work


class _Wrapper(PythonWork):
    """A work around one of torch's."""

    def __init__(self, inner):
        super().__init__()
        self._inner = inner

    def get_future(self):
        self.asked()
        return self._inner.get_future()

    def is_completed(self):
        return self._inner.is_completed()

    def is_success(self):
        return self._inner.is_success()

    def exception(self):
        return self._inner.exception()

    def result(self):
        return self._inner.result()


class _Work(_Wrapper):
    """A collective under way."""

    def __init__(self, inner, backend, tensors):
        """tensors: what it fills."""
        super().__init__(inner)
        self._backend, self._tensors = backend, tensors
        self.began, self.waits_in_cpp = time.monotonic(), False

    def get_future(self):
        self.waits_in_cpp = True
        return super().get_future()

    def wait(self, timeout=None):
        self.asked()
        limit = timeout if timeout else self._backend.timeout
        deadline = time.monotonic() + limit.total_seconds()
        while True:
            try:
                return self._inner.wait(min(_SLICE, limit))
            except RuntimeError:
                if self._inner.is_completed():
                    return self._end()
                if self._backend.gave_up:
                    raise PeerError(f"a collective was given up: {self._backend.why}{groups.advice}") from None
                if time.monotonic() >= deadline:
                    raise dist.DistBackendError(f"Timed out waiting {limit.total_seconds():g}s for a collective") from None

    def _end(self):
        """Raises what it ended with."""
        try:
            return self._inner.wait()
        except RuntimeError as error:
            if groups.advice and groups.over.wait(lambda told: told.why, _WORD_SECONDS):
                raise PeerError(f"{groups.over.why}: {error}{groups.advice}") from None
            raise

    def wait_for_gloo(self, seconds):
        """Returns whether Gloo has ended it within so many seconds."""
        try:
            self._inner.wait(timedelta(seconds=max(seconds, 0.001)))
        except RuntimeError:
            pass  # what it ended with, or that it has not ended
        return self._inner.is_completed()

    def give_up(self):
        """Ends waits on its future. Gloo must have forgotten it. Threads: any."""
        self._inner.get_future().set_result(self._tensors)


class _GpuWork(_Wrapper):
    """A collective of a GPU's, which its stream waits for."""

    def __init__(self, inner, settle):
        super().__init__(inner)
        self._settle = settle

    def wait(self, timeout=None):
        self.asked()
        self._inner.wait()
        if not callers.is_fsdp():
            self._settle()
        return True


class _Several(PythonWork):
    """Collectives under way, and what is done with their results at the first wait()."""

    def __init__(self, works, finish=None):
        super().__init__()
        self._works, self._finish = works, finish

    def wait(self, timeout=None):
        self.asked()
        for work in self._works:
            work.wait(timeout)
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        return True

    def is_completed(self):
        return all(work.is_completed() for work in self._works)


class _Backend:
    """A group of Gloo's in one generation, and the sockets that are its own by the addresses where its ranks listen."""

    def __init__(self, listeners, timeout, gpu=None):
        """gpu: an nccl.Gpu, for tensors on a GPU; None = Gloo takes these, too."""
        self.gpu = gpu
        self._listeners = frozenset(listeners)
        self._works = collections.deque()  # begun, the oldest first; at least those that are under way
        self.timeout = timeout
        self.inner = None    # the group, once it is connected, and
        self.threads = set()  # the numbers of its threads, and others that were started meanwhile
        self._sockets = set()  # the inodes of its sockets
        self.why = ""        # it is shut down
        self.gave_up = False  # a collective that seemed to end didn't
        self.timed_out = False  # in C++

    def run(self, name, arguments, named):
        device = nccl.device_of(arguments) if self.gpu is not None else None
        if device is not None:
            self._check()
            return self.gpu.run(device, name, arguments, named, _GpuWork)
        if name in _REDUCE_SCATTERS:
            return self._reduce_scatter(*arguments, **named)
        if name == "allgather_into_tensor_coalesced":  # Gloo's class has it under another name
            return _Several([self.run("_allgather_base", pair, {}) for pair in zip(*arguments[:2])])
        self._check()
        if name == "allreduce" and len(arguments) > 1 and arguments[1].reduceOp == dist.ReduceOp.AVG:
            return self._run_mean(*arguments)
        inner = getattr(self.inner, name)(*arguments, **named)
        if inner is None or name in POINT_TO_POINT:
            return inner
        while self._works and self._works[0].is_completed():
            self._works.popleft()
        work = _Work(inner, self, arguments[0] if arguments else [])
        self._works.append(work)
        self._check()  # again: one that began while the sockets were shut down may be forgotten, too
        return work

    def _run_mean(self, tensors, options):
        """Gloo has no such operation, and frameworks leave it out only where they read Gloo's name."""
        options.reduceOp = dist.ReduceOp.SUM
        try:
            work = self.run("allreduce", (tensors, options), {})
        finally:
            options.reduceOp = dist.ReduceOp.AVG
        work.wait()
        for tensor in tensors:
            tensor.copy_(tensor / self.inner.size())
        return work

    def _reduce_scatter(self, outputs, inputs, opts=None):
        """Sums up everything, and takes this rank's part of the sum, as Gloo does. Gloo's own work for it doesn't say when it has
        ended, and doesn't end at a timeout."""
        options = c10d.AllreduceOptions()
        if opts is not None:
            options.reduceOp = opts.reduceOp
        works, parts, rank = [], [], self.inner.rank()
        for output, given in [(outputs, inputs)] if isinstance(outputs, torch.Tensor) else zip(outputs, inputs):
            pieces = given.chunk(self.inner.size()) if isinstance(given, torch.Tensor) else given
            whole, first = torch.cat([piece.reshape(-1) for piece in pieces]), sum(piece.numel() for piece in pieces[:rank])
            works.append(self.run("allreduce", ([whole], options), {}))
            parts.append((output, whole[first:first + output.numel()].reshape(output.shape)))

        def finish():
            for output, part in parts:
                output.copy_(part)
        return _Several(works, finish)

    def _check(self):
        if self.why:
            raise PeerError(f"no collective begins: {self.why}{groups.advice}")

    def may_be_wrong(self):
        """Whether a collective of a generation that has ended may have seemed to end."""
        return self.gave_up or self.gpu is not None and not self.gpu.is_settled

    def settle(self):
        """Waits for the GPU. PeerError: what the group's collectives have given there may be nonsense."""
        if self.gpu is not None:
            self.gpu.settle()

    def shut_down(self, why):
        """Has all waits on the backend end. Threads: any."""
        self.why = why
        if self.gpu is not None:
            self.gpu.shut_down()
        self.know_sockets()
        for copy in self._own_sockets():
            with copy, contextlib.suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)

    def watch_time(self, over):
        """Returns when the generation is over. Until then, ends the backend if the group's time for a collective is over on which C++
        waits, as DDP's backward pass does: Python's waits look at the clock themselves, Gloo doesn't."""
        limit = left = min(self.timeout, _YEAR).total_seconds()
        while not over.wait(lambda told: told.why, left):
            left = self._time_left(limit)
            if left <= 0:
                why = f"timed out waiting {limit:g}s for a collective"
                print(f"ddprun.elastic: rank {os.environ.get('RANK', '?')} {why}", file=sys.stderr, flush=True)
                self.timed_out = True
                self.shut_down(why)
                return

    def _time_left(self, limit):
        return min((one.began + limit - time.monotonic() for one in list(self._works) if one.waits_in_cpp and not one.is_completed()),
                   default=limit)

    def await_ends(self):
        """Waits until all waits on a backend that is shut down have ended. Threads: any."""
        if self.gpu is not None:
            self.gpu.await_end()
        forgotten = self._under_way(_LOOK_SECONDS)
        while forgotten and not self._forgets(len(forgotten)):
            forgotten = self._under_way(_LOOK_SECONDS)
        # Gloo's threads have ended the others before the last look, in which they waited.
        forgotten = [work for work in forgotten if not work.is_completed()]
        self.gave_up = bool(forgotten)
        for work in forgotten:
            work.give_up()

    def release(self):
        """Ends the backend's threads, unless one of them waits forever."""
        if self.gpu is not None:
            self.gpu.release()
        if self.gave_up or self._under_way(_END_SECONDS):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.inner))
        self.inner, self._works = None, collections.deque()

    def _under_way(self, seconds):
        """The collectives that haven't ended within so many seconds."""
        deadline = time.monotonic() + seconds
        return [work for work in list(self._works) if not work.wait_for_gloo(deadline - time.monotonic())]

    def _own_sockets(self):
        """Copies of the backend's sockets that are connected, which the caller closes."""
        for copy in _tcp_sockets():
            try:
                is_own = not {_end(copy.getsockname()), _end(copy.getpeername())}.isdisjoint(self._listeners)
            except OSError:
                is_own = False  # it listens, or isn't connected
            if is_own:
                yield copy
            else:
                copy.close()

    def know_sockets(self):
        """Notes the numbers of the backend's sockets: one that both ends have shut down has no address any more."""
        for copy in self._own_sockets():
            with copy:
                self._sockets.add(os.fstat(copy.fileno()).st_ino)

    def _forgets(self, works):
        """Whether so many collectives that are under way will never end."""
        left = False
        for copy in _tcp_sockets():
            with copy:
                left = left or os.fstat(copy.fileno()).st_ino in self._sockets
        if left or not self._sockets:
            return False  # Gloo hasn't seen their end
        # A thread names itself when it begins. Before torch 2.5 none had a name, and all that were started meanwhile must wait.
        threads = [one for one in self.threads if _line(one, "comm") == _NAME_OF_THREADS] or self.threads
        lines = [_line(one, "syscall") for one in threads]
        calls = [line.split() for line in lines if line]  # one word where a thread doesn't wait
        if len(calls) < _THREADS or any(call[:1] != [_FUTEX] for call in calls):
            return False
        # A thread without a collective waits without a timeout: before glibc 2.34 by the call that waits for a mutex, too.
        return sum(int(call[2], 16) & 0x7f == _WAIT_BITSET for call in calls) >= min(works, _THREADS)


class Over:
    """Whether a generation is over, why, and the backends that are shut down at its end."""

    def __init__(self):
        self._lock = threading.Condition()
        self._backends = []
        self.why = ""       # "" = it goes on
        self.fatal = False  # no other generation follows for this process
        self.has_ended = False  # nothing waits on the backends any more
        self.place = None   # in the next generation, where there is one
        self.next = None    # the next generation's Over, with its place
        self.watched = threading.Event()  # the agent knows that this process goes on when the generation ends

    def add(self, backend):
        """Adds a backend that is shut down when the generation is over; at once if it is over already."""
        with self._lock:
            self._backends.append(backend)
            is_over = bool(self.why)
        if is_over:
            backend.shut_down(self.why)

    def tell(self, why, fatal=False):
        with self._lock:
            self.why, self.fatal = why or "the generation is over", fatal
            told = list(self._backends)
            self._lock.notify_all()
        for backend in told:
            backend.shut_down(self.why)
        # In a thread of its own: on a busy machine Gloo's threads may be late, and the caller must release the generation
        # within five seconds.
        threading.Thread(target=self._await_ends, args=(told,), name="ddprun ends", daemon=True).start()

    def _await_ends(self, backends):
        try:
            for backend in backends:
                backend.await_ends()
        finally:
            with self._lock:
                self.has_ended = True
                self._lock.notify_all()

    def follow(self, place, following):
        with self._lock:
            self.place, self.next = place, following
            self._lock.notify_all()

    def wait(self, condition, seconds=None):
        """Waits until condition(self) holds, or for so many seconds, and returns whether it holds. A thread that changes what the
        condition reads calls wake()."""
        with self._lock:
            return self._lock.wait_for(lambda: condition(self), seconds)

    def wake(self):
        with self._lock:
            self._lock.notify_all()


def _device():
    """(a device of Gloo's, the address where it listens)."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    make = c10d.ProcessGroupGloo
    for _ in range(5):  # another thread may begin to listen just then
        before = _listening()
        device = make.create_device(interface=names[0]) if names else make.create_default_device()
        new = _listening() - before
        if len(new) == 1:
            return device, new.pop()
    raise RuntimeError(f"a device of Gloo's listens on {len(new)} addresses instead of 1; torch {torch.__version__} isn't known")


class _StandIn:
    """A backend that ends all collectives at once, without other ranks."""

    def __init__(self, inner):
        self.inner = inner

    def may_be_wrong(self):
        return False

    def settle(self):
        pass

    def run(self, name, arguments, named):
        return None if name == "monitored_barrier" else getattr(self.inner, name)(*arguments, **named)

    def release(self):
        self.inner = None


class _Group(dist.ProcessGroup):
    """A group that lives as long as the process; `backend` is the generation's."""

    def __init__(self, rank, size, key, timeout):
        """key: identifies the group; the same on all its ranks. timeout: of its collectives."""
        super().__init__(rank, size)
        self.backend, self.key, self.timeout = None, key, timeout
        self.is_made = False
        self._rank, self._size, self._name = rank, size, key

    def place(self, rank, size):
        self._rank, self._size = rank, size

    def getBackendName(self):
        return NAME

    def name(self):
        return NAME

    def size(self):
        return self._size

    def rank(self):
        return self._rank

    getSize, getRank = size, rank

    @property
    def _device_types(self):
        """What FSDP2 and torch.distributed.checkpoint look for. As it is made, torch 2.15 would record its C++ part, which has none."""
        if not self.is_made:
            return []
        return [torch.device(name) for name in (("cpu", "cuda") if groups.has_nccl else ("cpu",))]

    def abort(self):
        pass

    def shutdown(self):
        groups.forget(self)

    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        self._name = name

    _set_group_name = setGroupName  # what torch 2.4 calls

    def _get_backend(self, device):
        """torch 2.15 asks it what it can do."""
        return self.backend.inner

    @property
    def group_name(self):
        return self._name


def _forwarding(name):
    def call(self, *arguments, **named):
        journal = groups.journal
        if journal is not None and journal.takes(self, name):
            return _held(journal.run(self, name, arguments, named))
        set_up = groups.set_up
        if journal is None and set_up is not None and set_up.takes(self, name):
            return _held(set_up.run(self.backend.run, name, arguments, named))
        return _held(self.backend.run(name, arguments, named))
    call.__name__ = name
    return call


for _name in _COLLECTIVES:
    setattr(_Group, _name, _forwarding(_name))
for _new, _name in NEW_NAMES.items():
    setattr(_Group, _new, getattr(_Group, _name))


class Groups:
    """All groups of this process, in the order in which they were made, which is the same on all ranks."""

    def __init__(self):
        self._all = []       # (group, the global ranks in it; [] = all)
        self.stands_in = False  # groups are made without anybody: this process sets itself up beside a job that trains
        self.over = None     # of the generation
        self.store = None    # the AgentStore
        self.address = ""    # of this rank, for other ranks; "" = not known
        self.journal = None  # a Journal (journal.py) that repeats collectives which a peer's loss breaks
        self.set_up = None   # a SetUp (set_up.py), until the training begins
        self.advice = ""     # ends the text of an error that a peer's loss has caused
        self.timeout = timedelta(minutes=30)
        self.has_nccl = False  # tensors on GPUs go over NCCL

    def refuse_nccl(self, what, error):
        """Raises an error of that kind where NCCL's groups are renewed: only a Session settles them."""
        if self.has_nccl:
            raise error(f"{what} can't be kept over NCCL yet: unset DDPRUN_ELASTIC_NCCL, and a failure restarts all processes")

    def settle(self):
        """Waits for the GPU. PeerError: what a collective has given there may be nonsense."""
        for group, _ in self._all:
            group.backend.settle()

    def gave_up(self):
        """Whether a collective that seemed to end didn't."""
        return bool(self.over is not None and self.over.why) and any(group.backend.may_be_wrong() for group, _ in self._all)

    def timed_out(self):
        """Whether this rank has ended a collective itself, because the group's time for it was over."""
        return any(getattr(group.backend, "timed_out", False) for group, _ in self._all)

    def is_all(self, group):
        """Whether a group is that of all ranks."""
        return bool(self._all) and self._all[0][0] is group

    def create(self, options, _):
        """Called by torch to create a backend."""
        rank, size = options.group_rank, options.group_size
        ranks = list(options.global_ranks_in_group)
        # A rank makes only the groups that it is in, so a group's number differs by rank; its name and ranks don't.
        key = f"{options.group_id}/{','.join(map(str, ranks))}" if self._all else "all"
        group = _Group(rank, size, key, options.timeout)
        self._all.append((group, ranks))
        if self.stands_in:
            make = getattr(c10d.FakeProcessGroup, "_create_internal", c10d.FakeProcessGroup)
            group.backend = _StandIn(make(rank, size))
        else:
            group.backend = self._connect(group)
        return group

    def forget(self, group):
        """A program destroys a group, but not that of all ranks."""
        if not self.is_all(group):
            self._all = [one for one in self._all if one[0] is not group]
            group.backend.release()

    def reform(self, rank, size):
        """Puts new backends under all groups. The group of all may have another size.

        PeerError: the generation ended meanwhile. RuntimeError: a group of some ranks does not fit into it.
        """
        for number, (group, ranks) in enumerate(self._all):
            if number > 0 and (max(ranks) >= size or rank not in ranks):
                raise RuntimeError(f"this is rank {rank} of {size} now, and has a group of ranks {ranks}")
            group.backend.release()
            group.place(*((rank, size) if number == 0 else (ranks.index(rank), len(ranks))))
            group.backend = self._connect(group)

    def close(self):
        """Ends the threads of all backends before the interpreter ends, because they hold Python objects."""
        for group, _ in self._all:
            group.backend.release()

    def _connect(self, group):
        """Connects a Gloo backend, in a thread of its own, which is abandoned if the generation ends: a rank that listens for a
        dead peer has no connection that could be shut down."""
        device, address = _device()
        self.address = address.rpartition(" ")[0]
        rank, size, prefix = group.rank(), group.size(), f"ddprun/group {group.key}/"
        told = self.store.gather(f"{prefix}listener{rank}", address.encode(), [f"{prefix}listener{one}" for one in range(size)])
        over = self.over
        gpu = nccl.Gpu((dist.PrefixStore(f"{prefix}nccl", self.store), rank, size, group.timeout), over, lambda: self.advice,
                       _tcp_sockets) if self.has_nccl else None
        backend = _Backend((one.decode() for one in told), group.timeout, gpu)
        options = c10d.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [device], _THREADS, CONNECT_TIMEOUT
        store, result = dist.PrefixStore(prefix, self.store), []

        def connect():
            try:
                before = _threads()
                made = c10d.ProcessGroupGloo(store, rank, size, options)
                backend.threads = _threads() - before
                backend.know_sockets()
                result.append(made)
                del made  # this thread watches the group, and close() destroys it
            except Exception as error:  # whatever it is, the caller raises it
                result.append(error)
            over.wake()
            if backend.threads:
                backend.watch_time(over)
        over.add(backend)
        threading.Thread(target=connect, name="ddprun connect", daemon=True).start()
        over.wait(lambda told: result or told.why)
        if not result:
            raise PeerError(f"the generation ended while its ranks connected: {over.why}")
        made = result.pop()
        if isinstance(made, Exception):
            raise made
        backend.inner = made
        backend.inner._set_default_timeout(_YEAR)
        if over.why:
            backend.shut_down(over.why)  # what was connected after the word; nothing has begun on it
        return backend


groups = Groups()
atexit.register(groups.close)


def register():
    """Registers these groups with torch, as the backend "ddprun"."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, groups.create, extended_api=True, devices=["cpu", "cuda"])
        _replace_functions()


def _replace_functions():
    """Those of torch's that ask for a backend's name, and one that gives a new worker nothing."""
    torchs = dist.distributed_c10d
    make, meet, share = torchs._new_process_group_helper, torchs.monitored_barrier, torchs.broadcast_object_list
    of_make, of_share = inspect.signature(make), inspect.signature(share)

    def made(*arguments, **named):
        # A group of Gloo's own would wait for peers that train, and end with the first one that is lost.
        of_call = of_make.bind(*arguments, **named).arguments
        if dist.is_initialized() and isinstance(dist.group.WORLD, _Group) and str(of_call["backend"]) in _GLOO:
            of_call["backend"] = NAME
        group, *more = make(**of_call)
        if isinstance(group, _Group):
            group.is_made = True
        return (group, *more)

    def met(group=None, timeout=None, wait_all_ranks=False):
        one = dist.group.WORLD if group is None else group
        if not isinstance(one, _Group):
            return meet(group, timeout, wait_all_ranks)
        return one.monitored_barrier(timeout or one.timeout, wait_all_ranks)

    def shared(*arguments, **named):
        # A new worker in the source's place would keep objects of its own.
        of_call = of_share.bind(*arguments, **named).arguments
        one = of_call.get("group") or dist.group.WORLD
        replays = groups.set_up is not None and groups.journal is None and groups.is_all(one)
        if replays and groups.set_up.has_objects(len(of_call["object_list"])):
            of_call.pop("group_src", None)
            of_call["src"] = (one.rank() + 1) % one.size()
        return share(**of_call)
    torchs._new_process_group_helper = made
    dist.monitored_barrier = torchs.monitored_barrier = met
    dist.broadcast_object_list = torchs.broadcast_object_list = shared
